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
using testing::Messages;

CallKind kind_of(const proto::Call& call) {
  if (call.disposition() == proto::RETAIN) return CallKind::kRemote;
  if (call.method() == kFetchMethod) return CallKind::kToHere;
  if (absl::StartsWith(call.method(), "sinew.autograd.")) return CallKind::kBackward;
  return absl::StartsWith(call.method(), "sinew.") ? CallKind::kOther : CallKind::kCall;
}

class FaultySink final : public ReplySink, public std::enable_shared_from_this<FaultySink> {
 public:
  FaultySink(std::shared_ptr<FaultTable> table, WorkerServices& services, const ArrivedCall& call,
             std::shared_ptr<ReplySink> inner)
      : table_(std::move(table)),
        services_(services.weak_services()),
        caller_(call.caller),
        inner_(std::move(inner)) {
    message_.kind = kind_of(call.envelope->call());
    message_.method = call.envelope->call().method();
    message_.caller = call.caller.name;
    message_.callee = services.self().name;
  }

  bool may_start(const std::shared_ptr<Invocation>& invocation) override;
  void on_reply(std::uint64_t call_id, Frame reply, std::vector<OnCarrierEnd> on_end) override {
    // shared_ptr: what is kept may go on or be given up.
    auto carriers = std::make_shared<std::vector<OnCarrierEnd>>(std::move(on_end));
    answer(
        call_id,
        [inner = inner_, call_id, reply = std::move(reply), carriers]() mutable {
          inner->on_reply(call_id, std::move(reply), std::move(*carriers));
        },
        [carriers] {
          for (OnCarrierEnd& end : *carriers) std::move(end)(CarrierEnd::kNotSent);
        });
  }
  void on_error(std::uint64_t call_id, const proto::Error& error) override {
    answer(
        call_id, [inner = inner_, call_id, error] { inner->on_error(call_id, error); }, [] {});
  }
  bool wants_envelope() const override { return inner_->wants_envelope(); }
  AuthenticatedPeer remote() const override { return inner_->remote(); }
  const CallContext::Metadata& metadata() const override { return inner_->metadata(); }

 private:
  /// Sends the answer unless a fault hits it; `drop` ends what it would have carried.
  void answer(std::uint64_t call_id, absl::AnyInvocable<void() &&> send,
              absl::AnyInvocable<void() &&> drop);
  void keep(const FaultTable::Verdict& verdict, FaultTable::Parcel parcel);
  /// Runs `task` on the executor of the worker; not at all once that is gone.
  void post(absl::AnyInvocable<void() &&> task) const;
  void break_connection() const;
  absl::Status failure(ErrorCode code) const {
    return {code, absl::StrCat("method '", message_.method, "' of worker '", message_.callee,
                               "' fails as a test wants it")};
  }
  void answer_lost(std::uint64_t call_id, ErrorCode code) const;

  const std::shared_ptr<FaultTable> table_;
  const std::weak_ptr<WorkerServices> services_;
  const WorkerInfo caller_;
  const std::shared_ptr<ReplySink> inner_;
  CallMessage message_;
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
  const std::optional<FaultTable::Verdict> verdict = table_->decide(message_);
  if (!verdict.has_value()) return inner_->may_start(invocation);
  if (verdict->action == FaultTable::Action::kBreak) {
    break_connection();
    return inner_->may_start(invocation);
  }
  auto refuse = [self = shared_from_this(), invocation](ErrorCode code) {
    self->is_given_up_.store(true);
    invocation->abort(self->failure(code));
  };
  if (verdict->action == FaultTable::Action::kFail) {
    refuse(verdict->code);
    return false;
  }
  keep(*verdict, {[self = shared_from_this(), invocation] {
                    if (const auto services = self->services_.lock()) {
                      services->server().start({invocation});
                    }
                  },
                  [self = shared_from_this(), refuse] {
                    self->post([refuse] { refuse(ErrorCode::kUnavailable); });
                  }});
  return false;
}

void FaultySink::answer(std::uint64_t call_id, absl::AnyInvocable<void() &&> send,
                        absl::AnyInvocable<void() &&> drop) {
  std::optional<FaultTable::Verdict> verdict;
  // What is refused before it starts has no reply.
  if (was_seen_.load() && !is_given_up_.load()) {
    message_.leg = Messages::Leg::kReply;
    verdict = table_->decide(message_);
  }
  if (!verdict.has_value()) return std::move(send)();
  switch (verdict->action) {
    case FaultTable::Action::kBreak:
      std::move(send)();
      break_connection();
      return;
    case FaultTable::Action::kFail:
      std::move(drop)();
      answer_lost(call_id, verdict->code);
      return;
    case FaultTable::Action::kDrop:
      std::move(drop)();
      break;
    case FaultTable::Action::kDelay:
    case FaultTable::Action::kHold:
      break;
  }
  keep(*verdict,
       {[self = shared_from_this(), send = std::move(send)]() mutable {
          self->post(std::move(send));
        },
        [self = shared_from_this(), call_id] {
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
    // Nobody waits for it any more.
    cancellation_.notify([table = table_, kept = *kept] { table->give_up(kept); });
  }
}

void FaultySink::post(absl::AnyInvocable<void() &&> task) const {
  if (const auto services = services_.lock()) services->executor()->post(std::move(task));
}

void FaultySink::break_connection() const {
  const auto services = services_.lock();
  if (services == nullptr || caller_.rank < 0) return;
  if (const auto link = services->link(caller_); link.ok()) (*link)->runner().break_connection();
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

std::shared_ptr<ReplySink> make_faulty_sink(std::shared_ptr<FaultTable> table,
                                            WorkerServices& services, const ArrivedCall& call,
                                            std::shared_ptr<ReplySink> sink) {
  return std::make_shared<FaultySink>(std::move(table), services, call, std::move(sink));
}

}  // namespace sinew::internal
