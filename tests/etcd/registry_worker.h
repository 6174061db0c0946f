#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "sinew/rpc/membership/etcd/etcd_registry.h"
#include "sinew/tests/etcd/etcd_servers.h"

namespace sinew::testing {

/// A worker's registry, and what it has told.
class RegistryWorker {
 public:
  using Values = absl::StatusOr<std::vector<std::string>>;

  static constexpr std::chrono::seconds kLease{30};
  static internal::etcd::EtcdRegistry::Options options(const std::string& name, int rank = -1,
                                                       int world_size = 0);
  RegistryWorker(const internal::etcd::EtcdOptions& servers,
                 internal::etcd::EtcdRegistry::Options options);
  /// In open membership.
  RegistryWorker(const EtcdServers& servers, const std::string& name)
      : RegistryWorker(servers.options(), options(name)) {}
  /// As when its process ends.
  ~RegistryWorker();

  internal::etcd::EtcdRegistry& registry() { return *registry_; }
  /// The last one that it has told.
  MembershipState state() const;
  bool is_member() const { return state() == MembershipState::kMember; }
  /// Of all on its list, sorted.
  std::vector<std::string> names() const;
  internal::registry::Record self() const;
  /// "+name", "-name (why: reason)" of others, in their order.
  std::vector<std::string> news() const;
  /// Of its states, all that there were.
  std::vector<MembershipState> states() const;
  /// Why the last of them came.
  absl::Status why() const;

  std::future<Values> gather(const std::string& key, std::vector<std::string> names,
                             std::string value,
                             internal::etcd::Time timeout = std::chrono::seconds(60));

 private:
  struct Told {
    internal::Mutex mutex;
    std::vector<std::string> news;
    std::vector<MembershipState> states;
    absl::Status why;
  };
  const Incarnation incarnation_;
  const std::shared_ptr<Told> told_ = std::make_shared<Told>();
  std::unique_ptr<internal::etcd::EtcdRegistry> registry_;
};

}  // namespace sinew::testing
