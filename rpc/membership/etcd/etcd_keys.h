#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sinew/rpc/membership/etcd/etcd_client.h"
#include "sinew/rpc/membership/etcd/layout.h"

namespace sinew::internal::etcd {

/// 1 MiB of a user, and what this library adds: etcd takes requests of 1.5 MiB, with all that is in
/// them.
inline constexpr std::size_t kMaxValueBytes = (std::size_t{1} << 20) + 1024;
inline constexpr std::size_t kMaxKeyBytes = 1024;

/// Values under keys. A key is its owner's, who alone may change it, and goes with its lease; one
/// that is kept is everybody's, and stays. All of it on the client's thread.
class EtcdKeys {
 public:
  /// The value of a key that was asked for, or that is another one than expected.
  using Then = absl::AnyInvocable<void(absl::Status, std::vector<std::string>)>;

  EtcdKeys(EtcdClient& client, const Layout& layout) : client_(client), layout_(layout) {}

  /// This worker's. Its keys that went with the lease before are written again.
  void set_lease(std::int64_t lease);
  void request(registry::KeyRequest request, Time timeout, Then then);

 private:
  struct Work;
  using WorkPtr = std::shared_ptr<Work>;

  absl::Status check(const registry::KeyRequest& request) const;
  void begin(WorkPtr work);
  /// `kv`: null if there is no such key.
  void found(WorkPtr work, const KeyValue* kv, std::int64_t revision);
  void change(WorkPtr work, std::int64_t mod_revision);
  void wait(WorkPtr work, std::int64_t from_revision);
  void end(Work& work, absl::Status status, std::vector<std::string> values = {});

  EtcdClient& client_;
  const Layout layout_;
  std::int64_t lease_ = 0;
  std::map<std::string, std::string> own_;
};

}  // namespace sinew::internal::etcd
