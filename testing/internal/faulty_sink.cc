#include "sinew/testing/internal/faulty_sink.h"

#include <atomic>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/error_codec.h"
#include "sinew/rpc/calls/serve.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

using testing::CallKind;
using testing::Leg;
using Verdict = FaultTable::Verdict;

CallKind kind_of(const proto::Call& call) {
  if (call.disposition() == proto::RETAIN) return CallKind::kRemote;
  if (call.method() == kFetchMethod) return CallKind::kToHere;
  if (absl::StartsWith(call.method(), "sinew.autograd.")) return CallKind::kBackward;
  return absl::StartsWith(call.method(), "sinew.") ? CallKind::kOther : CallKind::kCall;
}

class FaultySink final : public ReplySink, public std::enable_shared_from_this<FaultySink> {
 public:
  FaultySink(std::shared_ptr<FaultTable> table, std::shared_ptr<StepQueue> steps,
             WorkerServices& services, const ArrivedCall& call, std::shared_ptr<ReplySink> inner)
      : table_(std::move(table)),
        steps_(std::move(steps)),
        services_(services.weak_services()),
        caller_(call.caller),
        inner_(std::move(inner)) {
    message_.kind = kind_of(call.envelope->call());
    message_.method = call.envelope->call().method();
    message_.caller = call.caller.name;
    message_.callee = services.self().name;
    message_.size_bytes = call.size_bytes;
  }

  bool may_start(const std::shared_ptr<Invocation>& invocation) override;
  void on_reply(std::uint64_t call_id, Frame reply, std::vector<OnCarrierEnd> on_end) override {
    // shared_ptr: what is kept may go on or be given up.
    auto carriers = std::make_shared<std::vector<OnCarrierEnd>>(std::move(on_end));
    const std::size_t size_bytes = reply.size_bytes();
    answer({call_id, size_bytes,
            [inner = inner_, call_id, reply = std::move(reply), carriers]() mutable {
              inner->on_reply(call_id, std::move(reply), std::move(*carriers));
            },
            [carriers] {
              for (OnCarrierEnd& end : *carriers) std::move(end)(CarrierEnd::kNotSent);
            }});
  }
  void on_error(std::uint64_t call_id, const proto::Error& error) override {
    answer({call_id, error.ByteSizeLong(),
            [inner = inner_, call_id, error] { inner->on_error(call_id, error); }, [] {}});
  }
  void watch_queued(const Invocation& invocation) override { inner_->watch_queued(invocation); }
  bool wants_envelope() const override { return inner_->wants_envelope(); }
  AuthenticatedPeer remote() const override { return inner_->remote(); }
  const CallContext::Metadata& metadata() const override { return inner_->metadata(); }

 private:
  struct Answer {
    std::uint64_t call_id;
    std::uint64_t size_bytes;
    absl::AnyInvocable<void() &&> send;
    /// Ends what it would have carried.
    absl::AnyInvocable<void() &&> drop;
  };

  /// Null: the caller is no worker, or one of the two has gone.
  std::shared_ptr<CallLink> link_with_caller() const;
  /// Whether the message waits for a step.
  bool waits() const {
    return steps_ != nullptr && steps_->is_on() && message_.caller != message_.callee &&
           (caller_.rank < 0 || link_with_caller() != nullptr);
  }
  /// What becomes of the message: as the test says, or as the faults do.
  std::optional<Verdict> judge(std::optional<Verdict> by_step) {
    return by_step ? by_step : table_->decide(message_);
  }
  /// False: the call does not start now.
  bool admit(const std::shared_ptr<Invocation>& invocation, const std::optional<Verdict>& verdict);
  void start(const std::shared_ptr<Invocation>& invocation) const;
  void answer(Answer answer);
  void answer_as(const std::optional<Verdict>& verdict, Answer answer);
  void keep(const Verdict& verdict, FaultTable::Parcel parcel);
  /// Runs `task` on the executor of the worker; not at all once that is gone.
  void post(absl::AnyInvocable<void() &&> task) const;
  void break_connection() const;
  absl::Status failure(ErrorCode code) const {
    return {code, absl::StrCat("method '", message_.method, "' of worker '", message_.callee,
                               "' fails as a test wants it")};
  }
  void answer_lost(std::uint64_t call_id, ErrorCode code) const;

  const std::shared_ptr<FaultTable> table_;
  const std::shared_ptr<StepQueue> steps_;
  const std::weak_ptr<WorkerServices> services_;
  const WorkerInfo caller_;
  const std::shared_ptr<ReplySink> inner_;
  // Of the call until it is answered, and of its answer then.
  testing::Message message_;
  // Of the call. Written before it starts.
  CancellationToken cancellation_;
  std::atomic<bool> was_seen_{false};
  // What is answered is a fault's own error.
  std::atomic<bool> is_given_up_{false};
};

bool FaultySink::may_start(const std::shared_ptr<Invocation>& invocation) {
  // Again when it was held here, or by what is below.
  if (was_seen_.exchange(true)) return inner_->may_start(invocation);
  cancellation_ = invocation->cancellation();
  if (waits()) {
    message_.number = steps_->new_number();
    steps_->add(message_, invocation->call_id(),
                [self = shared_from_this(), invocation](std::optional<Verdict> by_step) {
                  if (self->admit(invocation, self->judge(by_step))) self->start(invocation);
                });
    return false;
  }
  return admit(invocation, judge(std::nullopt)) && inner_->may_start(invocation);
}

void FaultySink::start(const std::shared_ptr<Invocation>& invocation) const {
  if (const auto services = services_.lock()) services->server().start({invocation});
}

bool FaultySink::admit(const std::shared_ptr<Invocation>& invocation,
                       const std::optional<Verdict>& verdict) {
  if (!verdict.has_value()) return true;
  if (verdict->action == FaultTable::Action::kBreak) {
    break_connection();
    return true;
  }
  auto refuse = [self = shared_from_this(), invocation](ErrorCode code) {
    self->is_given_up_.store(true);
    invocation->abort(self->failure(code));
  };
  if (verdict->action == FaultTable::Action::kFail) {
    refuse(verdict->code);
    return false;
  }
  keep(*verdict, {[self = shared_from_this(), invocation] { self->start(invocation); },
                  [self = shared_from_this(), refuse] {
                    self->post([refuse] { refuse(ErrorCode::kUnavailable); });
                  }});
  return false;
}

void FaultySink::answer(Answer answer) {
  // What is refused before it starts has no reply.
  if (!was_seen_.load() || is_given_up_.load()) return std::move(answer.send)();
  message_.leg = Leg::kReply;
  message_.size_bytes = answer.size_bytes;
  if (!waits()) return answer_as(judge(std::nullopt), std::move(answer));
  message_.number = steps_->new_number();
  const std::uint64_t call_id = answer.call_id;
  steps_->add(message_, call_id,
              [self = shared_from_this(),
               answer = std::move(answer)](std::optional<Verdict> by_step) mutable {
                self->post([self, by_step, answer = std::move(answer)]() mutable {
                  self->answer_as(self->judge(by_step), std::move(answer));
                });
              });
}

void FaultySink::answer_as(const std::optional<Verdict>& verdict, Answer answer) {
  if (!verdict.has_value()) return std::move(answer.send)();
  switch (verdict->action) {
    case FaultTable::Action::kBreak:
      std::move(answer.send)();
      break_connection();
      return;
    case FaultTable::Action::kFail:
      std::move(answer.drop)();
      answer_lost(answer.call_id, verdict->code);
      return;
    case FaultTable::Action::kDrop:
      std::move(answer.drop)();
      break;
    case FaultTable::Action::kDelay:
    case FaultTable::Action::kHold:
      break;
  }
  keep(*verdict,
       {[self = shared_from_this(), send = std::move(answer.send)]() mutable {
          self->post(std::move(send));
        },
        [self = shared_from_this(), call_id = answer.call_id] {
          self->post([self, call_id] { self->answer_lost(call_id, ErrorCode::kUnavailable); });
        }});
}

void FaultySink::keep(const FaultTable::Verdict& verdict, FaultTable::Parcel parcel) {
  const std::optional<FaultTable::Number> kept = table_->keep(verdict, std::move(parcel));
  if (!kept.has_value()) return;
  if (verdict.action == FaultTable::Action::kDelay) {
    if (const auto services = services_.lock()) {
      services->timers().run_at(services->clock().now() + verdict.delay,
                                [table = table_, kept = *kept] { table->go_on(kept); });
    }
  } else if (verdict.action == FaultTable::Action::kDrop) {
    // It is not waited for any more.
    cancellation_.notify([table = table_, kept = *kept] { table->give_up(kept); });
  }
}

void FaultySink::post(absl::AnyInvocable<void() &&> task) const {
  if (const auto services = services_.lock()) services->executor()->post(std::move(task));
}

std::shared_ptr<CallLink> FaultySink::link_with_caller() const {
  const auto services = services_.lock();
  if (services == nullptr || caller_.rank < 0) return nullptr;
  const auto link = services->link(caller_);
  return link.ok() && (*link)->alive() ? *link : nullptr;
}

void FaultySink::break_connection() const {
  if (const auto link = link_with_caller()) link->runner().break_connection();
}

void FaultySink::answer_lost(std::uint64_t call_id, ErrorCode code) const {
  ErrorInfo info;
  info.code = code;
  info.message = std::string(failure(code).message());
  info.execution = Execution::kMayHaveRun;
  info.origin = ErrorOrigin::kCallee;
  proto::Error error;
  write_error(info, error);
  inner_->on_error(call_id, error);
}

}  // namespace

WrapReplySink make_faulty_sinks(std::shared_ptr<FaultTable> table,
                                std::shared_ptr<StepQueue> steps) {
  return [table = std::move(table), steps = std::move(steps)](
             WorkerServices& services, const ArrivedCall& call, std::shared_ptr<ReplySink> sink) {
    return std::make_shared<FaultySink>(table, steps, services, call, std::move(sink));
  };
}

}  // namespace sinew::internal
