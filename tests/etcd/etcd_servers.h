#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/membership/etcd/etcd_client.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

namespace sinew::testing {

/// Debian's etcd-server: a cluster on loopback, with its data in a folder of its own, in memory if
/// there is room. Servers and folder end with the test, also with one that is killed.
class EtcdServers {
 public:
  static bool is_installed();

  /// Waits until they serve (with certificates: listen). `arguments` are added to each one's.
  explicit EtcdServers(int count, std::vector<std::string> arguments = {});
  /// After a failure prints what each has logged last.
  ~EtcdServers();
  EtcdServers(const EtcdServers&) = delete;
  EtcdServers& operator=(const EtcdServers&) = delete;

  std::vector<std::string> endpoints() const;
  std::string endpoint(int server) const;
  internal::etcd::EtcdOptions options() const;
  /// Each request is sent once, however late its answer is: for those that fail the second time.
  internal::etcd::EtcdOptions patient_options() const;
  /// Where clients reach it.
  int port(int server) const { return ports_[static_cast<std::size_t>(server)].client; }
  /// From now on users are asked for; there is one, root.
  void require_root(const std::string& password) const;
  ChildProcess& process(int server) { return *processes_[static_cast<std::size_t>(server)]; }
  /// With what it had.
  void start(int server);
  void kill(int server);
  /// What a killed one had is gone.
  void wipe(int server);
  /// Which one leads; waits until one does.
  int leader() const;
  /// A server of the cluster answers that it has a leader.
  void wait_until_served() const;

 private:
  struct Ports {
    int client;
    int peer;
  };

  void wait_until_they_listen() const;
  std::string log(int server) const { return folder_.file(absl::StrCat("log", server)); }

  const std::vector<std::string> arguments_;
  const TemporaryFolder folder_;
  /// Removes the folder when the test is killed.
  ChildProcess keeper_;
  std::vector<Ports> ports_;
  std::vector<std::unique_ptr<ChildProcess>> processes_;
};

/// Skips the test where there is no etcd.
#define SINEW_NEEDS_ETCD()                                                           \
  if (!::sinew::testing::EtcdServers::is_installed()) {                              \
    GTEST_SKIP() << "there is no etcd here: on Debian, apt-get install etcd-server"; \
  } else                                                                             \
    static_cast<void>(0)

/// Waits for the answer.
template <class Request>
auto ask(internal::etcd::EtcdClient& client, Request request,
         internal::etcd::Time timeout = std::chrono::seconds(20)) {
  using Response = typename internal::etcd::Method<Request>::Response;
  auto promise = std::make_shared<std::promise<absl::StatusOr<Response>>>();
  auto answer = promise->get_future();
  client.call(std::move(request), timeout, [promise](absl::StatusOr<Response> response) {
    promise->set_value(std::move(response));
  });
  return answer.get();
}

}  // namespace sinew::testing
