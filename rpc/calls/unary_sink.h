#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

class WorkerServices;

/// The reply of a foreign client's call goes straight back: a value as the response, an error as
/// the call's status. The first answer counts. Thread-safe.
class UnarySink final : public ReplySink, public std::enable_shared_from_this<UnarySink> {
 public:
  UnarySink(WorkerServices& services, std::unique_ptr<UnaryCall> call);
  ~UnarySink() override;

  // Before the invocation is started whose reply comes here.

  /// Cancels it when the client goes away.
  void watch(const std::shared_ptr<Invocation>& invocation);
  /// Refuses it if it has not begun shortly before its deadline.
  void watch_queue(const std::shared_ptr<Invocation>& invocation);
  /// Cancels it at `deadline`, and tells the client, who may wait for longer. `method` is for
  /// texts.
  void end_at(Clock::TimePoint deadline, const std::shared_ptr<Invocation>& invocation,
              std::string method);

  // ReplySink

  /// How many there are, and how much they hold, the transport bounds.
  bool may_start(const std::shared_ptr<Invocation>&) override { return true; }
  /// Clients have no objects, whose turn would be waited for.
  void watch_queued(const Invocation&) override {}
  void on_reply(std::uint64_t call_id, Frame reply, std::vector<OnCarrierEnd> on_end) override;
  void on_error(std::uint64_t call_id, const proto::Error& error) override;
  bool wants_envelope() const override { return false; }
  AuthenticatedPeer remote() const override { return call_->remote(); }
  const CallContext::Metadata& metadata() const override { return call_->metadata(); }

 private:
  bool claim();
  void stop_timers();
  void on_time_over(std::string_view method);

  const std::weak_ptr<WorkerServices> services_;
  const std::unique_ptr<UnaryCall> call_;
  // 0: none.
  std::atomic<Timers::TimerId> timer_{0};
  std::atomic<Timers::TimerId> queue_timer_{0};
  std::atomic<bool> answered_{false};
};

/// Refuses a call before its method could see it.
void refuse(UnaryCall& call, const absl::Status& status);

}  // namespace sinew::internal
