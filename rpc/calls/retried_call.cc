#include "sinew/rpc/calls/retried_call.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

double draw_chance() {
  thread_local std::minstd_rand random(static_cast<std::minstd_rand::result_type>(random_secret()));
  return std::uniform_real_distribution<double>()(random);
}

/// A call that pauses is under way: who shuts down waits for it.
class Underway {
 public:
  explicit Underway(WorkerServices& services) : services_(services.weak_services()) {
    services.server().made().active.fetch_add(1, std::memory_order_acq_rel);
  }
  ~Underway() {
    if (const auto services = services_.lock()) {
      services->server().made().active.fetch_sub(1, std::memory_order_release);
    }
  }
  Underway(const Underway&) = delete;
  Underway& operator=(const Underway&) = delete;

 private:
  const std::weak_ptr<WorkerServices> services_;
};

}  // namespace

class RetriedCall::Attempt final : public PendingCall {
 public:
  Attempt(std::shared_ptr<RetriedCall> whole, std::shared_ptr<CallLink> link)
      : whole_(std::move(whole)), link_(std::move(link)) {}

  void on_reply(ReceivedReply reply) override {
    std::exception_ptr error;
    try {
      reply.throw_if_error();
    } catch (...) {
      error = std::current_exception();
    }
    const bool repeats =
        error != nullptr && whole_->repeats(error, link_, RetryRules::Answered::kByCallee);
    if (!repeats) whole_->pending_->on_reply(std::move(reply));
  }
  void on_error(std::exception_ptr error) override {
    if (whole_->repeats(error, link_, RetryRules::Answered::kByNobody)) return;
    whole_->pending_->on_error(std::move(error));
  }

 private:
  const std::shared_ptr<RetriedCall> whole_;
  const std::shared_ptr<CallLink> link_;
};

RetriedCall::RetriedCall(WorkerServices& services, proto::Envelope envelope,
                         std::vector<absl::Cord> payloads, RetryRules rules,
                         std::unique_ptr<PendingCall> pending)
    : services_(services.weak_services()),
      envelope_(std::move(envelope)),
      payloads_(std::move(payloads)),
      rules_(rules),
      pending_(std::move(pending)) {}

void RetriedCall::start(const std::shared_ptr<CallLink>& link, MessageRoute& route) {
  rewrite_ = route.rewrite();
  send(link, route);
}

void RetriedCall::send(const std::shared_ptr<CallLink>& link, MessageRoute& route) {
  auto attempt = std::make_unique<Attempt>(shared_from_this(), link);
  attempt->method = pending_->method;
  attempt->started = pending_->started;
  attempt->parent_caller = pending_->parent_caller;
  attempt->parent_id = pending_->parent_id;
  attempt->deadline = pending_->deadline;
  attempt->waits_for_room = pending_->waits_for_room;
  attempt->cancellations = pending_->cancellations;
  attempt->explain = pending_->explain;
  attempt->streams = pending_->streams;
  attempt->on_end = route.take_on_end();
  link->start_call(std::move(attempt), envelope_, payloads_, Lane::kCalls);
}

void RetriedCall::send_again(const std::shared_ptr<CallLink>& link) {
  const std::shared_ptr<WorkerServices> services = services_.lock();
  if (services == nullptr) {
    pending_->on_error(make_error(absl::CancelledError("the worker that made the call is gone")));
    return;
  }
  services->server().made().retries.fetch_add(1, std::memory_order_relaxed);
  MessageRoute route(*services, link->peer(), pending_->deadline);
  try {
    for (const auto& rewrite : rewrite_) rewrite(route);
  } catch (...) {
    pending_->on_error(std::current_exception());
    return;
  }
  send(link, route);
}

bool RetriedCall::repeats(const std::exception_ptr& error, const std::shared_ptr<CallLink>& link,
                          RetryRules::Answered answered) {
  const std::shared_ptr<WorkerServices> services = services_.lock();
  if (services == nullptr) return false;
  ErrorInfo info = describe(error);
  const WorkerInfo callee = link->peer();
  const RetryRules::Failure failure = {info.code, info.execution, answered,
                                       services->is_lost(callee)};
  const auto decision = rules_.on_failure(failure, services->clock().now(), draw_chance());
  const bool gives_up = decision.kind == RetryRules::Decision::Kind::kGiveUp;
  if (!gives_up && !why_once_.empty()) {
    absl::StrAppend(&info.message, "; retrying() has not repeated the call: ", why_once_);
    pending_->on_error(std::make_exception_ptr(RpcError(std::move(info))));
    return true;
  }
  switch (decision.kind) {
    case RetryRules::Decision::Kind::kGiveUp:
      return false;
    case RetryRules::Decision::Kind::kRepeat:
      send_over(*services, services->wait_until(decision.when).then([link] { return link; }));
      return true;
    case RetryRules::Decision::Kind::kRepeatAtNext:
      send_over(*services, next_link(*services, callee));
      return true;
  }
  return false;
}

Future<std::shared_ptr<CallLink>> RetriedCall::next_link(WorkerServices& services,
                                                         const WorkerInfo& lost) const {
  return services.wait_for_member(lost.name, lost.incarnation, pending_->deadline)
      .then([weak = services_](const WorkerInfo& next) {
        const std::shared_ptr<WorkerServices> running = weak.lock();
        if (running == nullptr) throw_error(absl::CancelledError("the worker is gone"));
        absl::StatusOr<std::shared_ptr<CallLink>> link = running->link(next);
        if (!link.ok()) throw_error(link.status());
        return *std::move(link);
      });
}

void RetriedCall::send_over(WorkerServices& services,
                            const Future<std::shared_ptr<CallLink>>& next) {
  using Chosen = std::shared_ptr<CallLink>;
  const auto underway = std::make_shared<Underway>(services);
  const Promise<Chosen> chosen(services.executor().get());
  std::vector<std::uint64_t> numbers;
  for (const CancellationToken& token : pending_->cancellations) {
    numbers.push_back(token.notify([chosen, method = pending_->method] {
      chosen.try_set_error(make_error(
          absl::CancelledError("the call was cancelled before it was repeated"), {}, method));
    }));
  }
  next.on_done([chosen](const Future<Chosen>& done) {
    done.error() == nullptr ? chosen.try_set_value(done.value())
                            : chosen.try_set_error(done.error());
  });
  chosen.future().on_done(
      [self = shared_from_this(), underway, numbers](const Future<Chosen>& link) {
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          self->pending_->cancellations[i].forget(numbers[i]);
        }
        link.error() == nullptr ? self->send_again(link.value())
                                : self->pending_->on_error(link.error());
      });
}

}  // namespace sinew::internal
