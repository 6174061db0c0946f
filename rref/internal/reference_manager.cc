#include "sinew/rref/internal/reference_manager.h"
#include "sinew/rpc/calls/layers.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/method_traits.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rref.pb.h"
#include "sinew/rref/internal/layer.h"
#include "sinew/rref/internal/ledger_codec.h"
#include "sinew/rref/internal/names_manager.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMaxDescriptionBytes = 256;

ledger::LedgerOptions options_of(const WorkerServices& services) {
  ledger::LedgerOptions options;
  options.lease = services.options().lease;
  return options;
}

std::optional<ledger::Time> deadline_of(const MessageRoute& route) {
  if (route.deadline() == Clock::TimePoint::max()) return std::nullopt;
  return route.deadline().time_since_epoch();
}

/// Until the value has been made: see report_locked(). The text comes from the network.
ledger::Description description_of(const proto::Call& call) {
  const std::string method = printable(call.method(), kMaxDescriptionBytes);
  const std::size_t arrow = call.signature().rfind("->");
  const std::string result =
      arrow == std::string::npos
          ? std::string()
          : printable(call.signature().substr(arrow + 2), kMaxDescriptionBytes);
  const bool travels = !result.empty() && result != kKeptResult;
  return {travels ? result : absl::StrCat("result of ", method),
          absl::StrCat("remote call of ", method)};
}

}  // namespace

struct ReferenceManager::After {
  std::vector<std::pair<Promise<void>, absl::Status>> confirmations;
  // Destructors of values may run anything.
  std::vector<std::shared_ptr<ValueSlot>> destroyed;
  std::vector<RRefId> changed;
  std::vector<absl::Status> refused;
};

std::shared_ptr<Extension> make_references(WorkerServices& services) {
  return ReferenceManager::make(services);
}

std::shared_ptr<ReferenceManager> ReferenceManager::make(WorkerServices& services) {
  std::shared_ptr<ReferenceManager> manager(new ReferenceManager(services));
  services.set_references(manager.get());
  return manager;
}

std::shared_ptr<ReferenceManager> ReferenceManager::of(const WorkerServices& services) {
  return require_layer<ReferenceManager>(services, "rref");
}

ReferenceManager::ReferenceManager(WorkerServices& services)
    : services_(services), ledger_(services.self(), options_of(services)) {}

ReferenceManager::~ReferenceManager() = default;

const WorkerInfo& ReferenceManager::self() const { return services_.self(); }

ledger::Time ReferenceManager::now() const { return to_time(services_.clock().now()); }

// ---- The ledger's actions.

void ReferenceManager::apply(absl::FunctionRef<ledger::Handled(ledger::Ledger&)> step) {
  After after;
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    ledger::Handled handled = step(ledger_);
    if (!handled.status.ok()) after.refused.push_back(handled.status);
    perform_locked(std::move(handled.actions), after);
  }
  for (const absl::Status& status : after.refused) services_.log(std::string(status.message()));
  for (auto& [promise, status] : after.confirmations) {
    if (status.ok()) {
      promise.try_set_value();
    } else {
      promise.try_set_error(make_error(status));
    }
  }
  for (const RRefId& rref : after.changed) check_waiting(rref);
  after.destroyed.clear();
  flush();
  finish_drains();
}

void ReferenceManager::perform_locked(ledger::Actions actions, After& after) {
  std::deque<ledger::Action> queue(std::make_move_iterator(actions.begin()),
                                   std::make_move_iterator(actions.end()));
  const auto settle = [&](const ForkId& fork, absl::Status status) {
    mutex_.assert_held();
    const auto found = confirmations_.find(fork);
    if (found == confirmations_.end()) return;
    after.confirmations.emplace_back(std::move(found->second), std::move(status));
    confirmations_.erase(found);
  };
  while (!queue.empty()) {
    ledger::Action action = std::move(queue.front());
    queue.pop_front();
    if (auto* send = std::get_if<ledger::Send>(&action)) {
      if (send->to.incarnation == self().incarnation) {
        ledger::Handled handled = ledger_.handle(send->message, self(), now());
        if (!handled.status.ok()) after.refused.push_back(handled.status);
        for (ledger::Action& more : handled.actions) queue.push_back(std::move(more));
        continue;
      }
      Channel& channel = channel_locked(send->to);
      if (channel.fenced) continue;
      dirty_.insert(send->to.incarnation);
      channel.waiting.push_back(make_queued(std::move(*send)));
    } else if (auto* confirmed = std::get_if<ledger::Confirmed>(&action)) {
      settle(confirmed->fork, absl::OkStatus());
    } else if (auto* failed = std::get_if<ledger::Failed>(&action)) {
      settle(failed->fork, failed->status);
    } else if (auto* destroy = std::get_if<ledger::DestroyValue>(&action)) {
      const auto found = slots_.find(destroy->rref);
      if (found == slots_.end()) continue;
      after.destroyed.push_back(std::move(found->second));
      slots_.erase(found);
    } else if (auto* changed = std::get_if<ledger::ReferenceChanged>(&action)) {
      after.changed.push_back(changed->rref);
    }
  }
  arm_timer_locked();
}

// ---- Users.

absl::StatusOr<ledger::Created> ReferenceManager::create(const WorkerInfo& owner,
                                                         const std::string& type_name,
                                                         const std::string& method) {
  MutexLock lock(mutex_);
  return ledger_.create(owner, {type_name, "remote call of " + method});
}

void ReferenceManager::create_succeeded(const ForkId& fork) {
  apply([&](ledger::Ledger& ledger) { return ledger.create_succeeded(fork, now()); });
}

void ReferenceManager::create_failed(const ForkId& fork, const absl::Status& error,
                                     Clock::TimePoint deadline) {
  std::optional<ledger::Time> until;
  if (deadline != Clock::TimePoint::max()) until = to_time(deadline);
  apply([&](ledger::Ledger& ledger) { return ledger.create_failed(fork, error, until, now()); });
}

absl::StatusOr<ledger::UserView> ReferenceManager::view(const ForkId& fork) const {
  MutexLock lock(mutex_);
  if (stopped_) {
    return services_.ended("its references have been deleted");
  }
  return ledger_.view(fork);
}

void ReferenceManager::release_user(const ForkId& fork) {
  apply([&](ledger::Ledger& ledger) { return ledger.release_user(fork, now()); });
}

absl::StatusOr<ledger::ForkRecord> ReferenceManager::share_user(const ForkId& fork,
                                                                MessageRoute& route) {
  MutexLock lock(mutex_);
  absl::StatusOr<ledger::ForkRecord> record =
      ledger_.share_user(fork, route.peer(), deadline_of(route));
  arm_timer_locked();
  return record;
}

// ---- Owners.

RRefId ReferenceManager::own(std::shared_ptr<ValueSlot> slot, ledger::ValueState state,
                             const std::string& type_name, std::string creation_site) {
  MutexLock lock(mutex_);
  const RRefId rref = ledger_.own(state, {type_name, std::move(creation_site)});
  slots_.emplace(rref, std::move(slot));
  return rref;
}

void ReferenceManager::release_owned(const RRefId& rref) {
  apply([&](ledger::Ledger& ledger) { return ledger.release_owned(rref); });
}

absl::StatusOr<ledger::ForkRecord> ReferenceManager::share_owned(const RRefId& rref,
                                                                 MessageRoute& route) {
  MutexLock lock(mutex_);
  if (stopped_) {
    return services_.ended("its references have been deleted");
  }
  absl::StatusOr<ledger::ForkRecord> record =
      ledger_.share_owned(rref, route.peer(), deadline_of(route));
  arm_timer_locked();
  return record;
}

std::shared_ptr<ValueSlot> ReferenceManager::slot(const RRefId& rref) const {
  MutexLock lock(mutex_);
  const auto found = slots_.find(rref);
  return found == slots_.end() ? nullptr : found->second;
}

// ---- References in messages.

OnCarrierEnd ReferenceManager::on_carrier_end(const ForkId& fork, Clock::TimePoint deadline) {
  const bool bounded = deadline != Clock::TimePoint::max();
  return [weak = weak_from_this(), fork, bounded](CarrierEnd how) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    if (how == CarrierEnd::kNotSent) {
      self->apply(
          [&](ledger::Ledger& ledger) { return ledger.carrier_not_sent(fork, self->now()); });
    } else if (how == CarrierEnd::kFailed || !bounded) {
      // A message with a deadline that was answered needs no look: time settles what may be left.
      self->apply([&](ledger::Ledger& ledger) { return ledger.carrier_failed(fork, self->now()); });
    }
  };
}

absl::StatusOr<ReferenceManager::Arrived> ReferenceManager::receive(
    const ledger::ForkRecord& record, const WorkerInfo& sender, const std::string& type_name) {
  absl::StatusOr<Arrived> arrived = absl::CancelledError("the worker was shut down");
  apply([&](ledger::Ledger& ledger) {
    mutex_.assert_held();
    ledger::Outcome<ledger::Received> outcome = ledger.receive(
        record, sender, {type_name, absl::StrCat("received from ", sender.name)}, now());
    if (!outcome.result.ok()) {
      arrived = outcome.result.status();
    } else {
      arrived = Arrived{*outcome.result, {}};
      if (arrived->received.state == ledger::Received::State::kWaiting) {
        Promise<void> promise(services_.executor().get());
        arrived->confirmation = promise.future();
        // Before the actions are done: they may settle it already.
        confirmations_.emplace(arrived->received.fork, std::move(promise));
      }
    }
    return ledger::Handled{absl::OkStatus(), std::move(outcome.actions)};
  });
  return arrived;
}

// ---- Calls that keep results, and uses.

absl::Status ReferenceManager::begin_retain(const proto::Call& call, const WorkerInfo& from) {
  const auto rref = read_id<RRefId>(call.retain().rref());
  const auto fork = read_id<ForkId>(call.retain().fork());
  absl::Status result;
  apply([&](ledger::Ledger& ledger) {
    mutex_.assert_held();
    if (from.incarnation == self().incarnation) {
      // A call to this worker itself: own() has entered it.
      if (!slots_.contains(rref)) {
        result =
            absl::FailedPreconditionError("the reference was given up before its call arrived");
      }
      return ledger::Handled{};
    }
    ledger::Handled handled = ledger.on_create(rref, fork, from, description_of(call), now());
    result = handled.status;
    if (result.ok()) {
      // Before the actions are done: they may use it already.
      slots_.emplace(rref, std::make_shared<ValueSlot>(services_.executor().get()));
    }
    return ledger::Handled{absl::OkStatus(), std::move(handled.actions)};
  });
  return result;
}

void ReferenceManager::retain(const proto::Retain& retain, AnyValue value) {
  const auto rref = read_id<RRefId>(retain.rref());
  const std::shared_ptr<ValueSlot> found = slot(rref);
  if (found == nullptr) return;  // Given up meanwhile; the value goes with this call.
  if (!found->promise.try_set_value(std::move(value))) return;
  apply([&](ledger::Ledger& ledger) { return ledger.owner_fulfilled(rref); });
}

void ReferenceManager::fail_retain(const proto::Retain& retain, std::exception_ptr error) {
  const auto rref = read_id<RRefId>(retain.rref());
  const std::shared_ptr<ValueSlot> found = slot(rref);
  if (found == nullptr) return;
  const absl::Status status = to_status(error);
  // Handles of this worker throw it as it is: of the one type that is thrown at the public edge.
  // The caller and the callee of a call to oneself both report its failure.
  if (!found->promise.try_set_error(make_error(describe(error)))) return;
  apply([&](ledger::Ledger& ledger) { return ledger.owner_failed(rref, status); });
}

absl::StatusOr<ledger::UseState> ReferenceManager::use_state_locked(const RRefId& rref,
                                                                    const ForkId& fork,
                                                                    const WorkerInfo& from) {
  // This worker's own handles have no fork.
  if (from.incarnation == self().incarnation && fork.empty()) return ledger_.owned_state(rref);
  return ledger_.authorise_use(rref, fork, from);
}

Future<AnyValue> ReferenceManager::resolve(const proto::Reference& target, const WorkerInfo& from,
                                           Clock::TimePoint deadline) {
  const auto rref = read_id<RRefId>(target.rref());
  const auto fork = read_id<ForkId>(target.fork());
  MutexLock lock(mutex_);
  const absl::StatusOr<ledger::UseState> state = use_state_locked(rref, fork, from);
  const auto found = slots_.find(rref);
  if (!state.ok()) {
    // The creating call's own exception says more than its status; others get no look at it.
    const absl::StatusOr<ledger::UseState> owned = ledger_.owned_state(rref);
    const bool creation_failed = !owned.ok() && owned.status() == state.status();
    if (creation_failed && found != slots_.end()) return found->second->future;
    return make_failed_future<AnyValue>(make_error(state.status()));
  }
  if (*state != ledger::UseState::kPendingCreation && found != slots_.end()) {
    return found->second->future;
  }
  Promise<AnyValue> promise(services_.executor().get());
  Future<AnyValue> future = promise.future();
  waiting_.emplace(rref, Waiting{fork, from, deadline, std::move(promise)});
  arm_timer_locked();
  return future;
}

Future<AnyValue> ReferenceManager::published(const std::string& name, Clock::TimePoint deadline) {
  const auto found = NamesManager::of(services_)->find(name);
  if (!found.ok()) return make_failed_future<AnyValue>(make_error(found.status()));
  const auto left =
      deadline == Clock::TimePoint::max() ? kNoTimeout : deadline - services_.clock().now();
  return (*found)->value_async({std::max(left, std::chrono::nanoseconds(1)), {}});
}

void ReferenceManager::check_waiting(const RRefId& rref) {
  std::vector<std::pair<Promise<AnyValue>, std::shared_ptr<ValueSlot>>> ready;
  std::vector<std::pair<Promise<AnyValue>, absl::Status>> failed;
  {
    MutexLock lock(mutex_);
    const auto slot = slots_.find(rref);
    for (auto at = waiting_.lower_bound(rref); at != waiting_.end() && at->first == rref;) {
      const absl::StatusOr<ledger::UseState> state =
          use_state_locked(rref, at->second.fork, at->second.from);
      if (state.ok() && (*state == ledger::UseState::kPendingCreation || slot == slots_.end())) {
        ++at;
        continue;
      }
      if (slot != slots_.end()) {
        ready.emplace_back(std::move(at->second.promise), slot->second);
      } else {
        failed.emplace_back(std::move(at->second.promise), state.status());
      }
      at = waiting_.erase(at);
    }
  }
  for (auto& [promise, slot] : ready) {
    slot->future.on_done([promise = promise](const Future<AnyValue>& value) {
      if (const std::exception_ptr error = value.error()) {
        promise.try_set_error(error);
      } else {
        promise.try_set_value(value.value());
      }
    });
  }
  for (auto& [promise, status] : failed) promise.try_set_error(make_error(status));
}

// ---- Time.

void ReferenceManager::arm_timer_locked() {
  if (stopped_) return;
  Clock::TimePoint next = Clock::TimePoint::max();
  const auto consider = [&next](std::optional<ledger::Time> when) {
    if (when.has_value()) next = std::min(next, Clock::TimePoint(*when));
  };
  consider(ledger_.next_tick());
  for (const auto& [incarnation, channel] : channels_) {
    if (!channel.waiting.empty() && channel.known_at != Clock::TimePoint::min()) {
      next = std::min(next, channel.known_at);
    }
  }
  for (const auto& [rref, waiting] : waiting_) next = std::min(next, waiting.deadline);
  for (const Drain& drain : drains_) next = std::min(next, drain.deadline);
  if (next >= armed_for_) return;
  if (timer_ != 0) services_.timers().cancel(timer_);
  // Not more often than once a millisecond, whatever is due.
  armed_for_ = std::max(next, services_.clock().now() + std::chrono::milliseconds(1));
  timer_ = services_.timers().run_at(armed_for_, [weak = weak_from_this()] {
    auto self = weak.lock();
    if (self == nullptr) return;
    self->services_.control_executor().post([self] { self->on_timer(); });
  });
}

void ReferenceManager::on_timer() {
  std::vector<std::pair<Promise<AnyValue>, RRefId>> overdue;
  apply([&](ledger::Ledger& ledger) {
    mutex_.assert_held();
    armed_for_ = Clock::TimePoint::max();
    timer_ = 0;
    const Clock::TimePoint current = services_.clock().now();
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      if (at->second.deadline > current) {
        ++at;
        continue;
      }
      overdue.emplace_back(std::move(at->second.promise), at->first);
      at = waiting_.erase(at);
    }
    for (auto& [incarnation, channel] : channels_) {
      if (channel.known_at == Clock::TimePoint::min() || channel.known_at > current) continue;
      channel.known_at = Clock::TimePoint::min();
      dirty_.insert(incarnation);
    }
    return ledger.tick(to_time(current));
  });
  for (auto& [promise, rref] : overdue) {
    promise.try_set_error(make_error(absl::DeadlineExceededError(
        absl::StrFormat("the call that makes %s did not arrive in time", ledger::describe(rref)))));
  }
}

// ---- Loss and shutdown.

void ReferenceManager::on_worker_fenced(const WorkerInfo& worker) {
  apply([&](ledger::Ledger& ledger) {
    mutex_.assert_held();
    const auto found = channels_.find(worker.incarnation);
    if (found != channels_.end()) {
      found->second.fenced = true;
      found->second.waiting.clear();
      found->second.on_the_way.clear();
    }
    return ledger.fence(worker, now());
  });
}

void ReferenceManager::on_worker_lost(const WorkerInfo& worker) {
  apply([&](ledger::Ledger& ledger) {
    mutex_.assert_held();
    channels_.erase(worker.incarnation);
    dirty_.erase(worker.incarnation);
    return ledger.worker_lost(worker, now());
  });
}

void ReferenceManager::add_counters(Counters& counters) const {
  MutexLock lock(mutex_);
  const ledger::LedgerCounters count = ledger_.counters();
  counters["rref.owned"] = static_cast<std::int64_t>(count.owner_entries);
  counters["rref.forks"] = static_cast<std::int64_t>(count.forks);
  counters["rref.users"] = static_cast<std::int64_t>(count.users);
  counters["rref.pending_users"] = static_cast<std::int64_t>(count.pending_users);
  counters["rref.pending_children"] = static_cast<std::int64_t>(count.pending_children);
}

void ReferenceManager::stop() {
  absl::btree_map<RRefId, std::shared_ptr<ValueSlot>> slots;
  absl::btree_map<ForkId, Promise<void>> confirmations;
  absl::btree_multimap<RRefId, Waiting> waiting;
  std::vector<Drain> drains;
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    if (timer_ != 0) services_.timers().cancel(timer_);
    slots.swap(slots_);
    confirmations.swap(confirmations_);
    waiting.swap(waiting_);
    drains.swap(drains_);
  }
  const std::exception_ptr error =
      make_error(absl::CancelledError(absl::StrFormat("worker '%s' was shut down", self().name)));
  for (auto& [fork, promise] : confirmations) promise.try_set_error(error);
  for (auto& [rref, use] : waiting) use.promise.try_set_error(error);
  for (Drain& drain : drains) drain.promise.try_set_error(error);
}

}  // namespace sinew::internal
