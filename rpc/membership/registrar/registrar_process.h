#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/membership/registrar/registrar.h"
#include "sinew/rpc/membership/registry/registry_messages.h"
#include "sinew/rpc/membership/scheduler.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// A registrar that is no worker: any worker of its job may die. Thread-safe.
class RegistrarProcess final : public Acceptor {
 public:
  struct Options {
    std::string job = "default";
    /// Empty: all may ask.
    std::string token;
    /// 0: open membership.
    int world_size = 0;
    registry::Time lease = std::chrono::seconds(15);
  };
  /// Answers at the transport's address from here on. Throws RpcError without threads.
  static absl::StatusOr<std::unique_ptr<RegistrarProcess>> start(
      const Options& options, std::unique_ptr<Transport> transport);
  ~RegistrarProcess() override;

  std::string address() const { return transport_->address(); }

  // Acceptor
  absl::StatusOr<Accepted> on_connection(const std::string& hello,
                                         const AuthenticatedPeer& remote) override;

 private:
  RegistrarProcess(const Options& options, std::unique_ptr<Transport> transport);
  const Options options_;
  SelfDescription self_;
  TimerQueue timers_;
  Executor executor_;
  Scheduler scheduler_;
  const std::unique_ptr<Transport> transport_;
  std::shared_ptr<Registrar> registrar_;
};

}  // namespace sinew::internal
