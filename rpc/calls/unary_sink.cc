#include "sinew/rpc/calls/unary_sink.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/error_codec.h"
#include "sinew/rpc/calls/queue_limits.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

absl::Status status_of(const proto::Error& error) {
  absl::Status status(static_cast<absl::StatusCode>(error.code()), error.message());
  status.SetPayload(kErrorPayload, absl::Cord(error.SerializeAsString()));
  return status;
}

void fail(UnaryCall& call, const absl::Status& status, Execution execution) {
  ErrorInfo info;
  info.code = status.code();
  info.message = std::string(status.message());
  info.execution = execution;
  info.origin = ErrorOrigin::kCallee;
  proto::Error error;
  write_error(info, error);
  call.fail(status_of(error));
}

}  // namespace

UnarySink::UnarySink(WorkerServices& services, std::unique_ptr<UnaryCall> call)
    : services_(services.weak_services()), call_(std::move(call)) {}

// An invocation may be forgotten unanswered.
UnarySink::~UnarySink() { stop_timers(); }

void UnarySink::watch(const std::shared_ptr<Invocation>& invocation) {
  call_->notify_on_cancel([weak = std::weak_ptr<Invocation>(invocation)] {
    if (const auto running = weak.lock()) running->cancel();
  });
}

void UnarySink::watch_queue(const std::shared_ptr<Invocation>& invocation) {
  const std::shared_ptr<WorkerServices> services = services_.lock();
  const Clock::TimePoint refused_at =
      QueueLimits::refused_at(invocation->arrived(), invocation->deadline());
  if (services == nullptr || refused_at == Clock::TimePoint::max()) return;
  queue_timer_ = services->timers().run_at(
      refused_at, [weak_services = services_, weak = std::weak_ptr<Invocation>(invocation)] {
        const auto worker = weak_services.lock();
        if (worker == nullptr) return;
        worker->control_executor().post([weak_services, weak] {
          const auto callee = weak_services.lock();
          const auto call = weak.lock();
          if (callee == nullptr || call == nullptr || !call->is_queued()) return;
          const auto waited = callee->clock().now() - call->arrived();
          callee->server().note_queued(waited);
          call->refuse_queued(waited);
        });
      });
}

void UnarySink::end_at(Clock::TimePoint deadline, const std::shared_ptr<Invocation>& invocation,
                       std::string method) {
  const std::shared_ptr<WorkerServices> services = services_.lock();
  if (services == nullptr) return;
  timer_ =
      services->timers().run_at(deadline, [weak_self = weak_from_this(), weak_services = services_,
                                           weak = std::weak_ptr<Invocation>(invocation),
                                           method = std::move(method)]() mutable {
        const auto worker = weak_services.lock();
        if (worker == nullptr) return;
        // What a handler wants to hear of it is not for the thread of the timers.
        worker->executor()->post([weak_self, weak, method = std::move(method)] {
          if (const auto self = weak_self.lock()) self->on_time_over(method);
          if (const auto running = weak.lock()) running->cancel();
        });
      });
}

void UnarySink::on_reply(std::uint64_t, Frame reply, std::vector<OnCarrierEnd> on_end) {
  const bool is_first = claim();
  if (is_first) call_->reply(std::move(reply));
  for (OnCarrierEnd& end : on_end) {
    std::move(end)(is_first ? CarrierEnd::kAnswered : CarrierEnd::kNotSent);
  }
}

void UnarySink::on_error(std::uint64_t, const proto::Error& error) {
  if (claim()) call_->fail(status_of(error));
}

void UnarySink::on_time_over(std::string_view method) {
  if (!claim()) return;
  fail(*call_,
       absl::DeadlineExceededError(absl::StrFormat(
           "method '%s': the time that the call gave itself (Call.timeout_us) is over", method)),
       Execution::kMayHaveRun);
}

bool UnarySink::claim() {
  if (answered_.exchange(true, std::memory_order_acq_rel)) return false;
  stop_timers();
  return true;
}

void UnarySink::stop_timers() {
  for (std::atomic<Timers::TimerId>* timer : {&timer_, &queue_timer_}) {
    const Timers::TimerId set = timer->exchange(0);
    if (set == 0) continue;
    if (const auto services = services_.lock()) services->timers().cancel(set);
  }
}

void refuse(UnaryCall& call, const absl::Status& status) {
  fail(call, status, Execution::kDidNotRun);
}

}  // namespace sinew::internal
