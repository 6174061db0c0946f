// Calls of objects that are called by one at a time; the rest is in invocation.cc.

#include <algorithm>
#include <chrono>
#include <optional>
#include <typeinfo>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/call_turn.h"
#include "sinew/rpc/calls/invocation_request.h"
#include "sinew/rpc/calls/served_error.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

TurnTable::Key key_of(const proto::GlobalId& reference) {
  return {reference.secret(), absl::HashOf(reference.creator(), reference.serial())};
}

TurnTable::Key key_of(const proto::Call& call) {
  if (call.object().empty()) return key_of(call.target().rref());
  return {absl::HashOf(call.object()), 0};
}

// Two references may be to one object, and an object to its first member.
TurnTable::Key key_of(const AnyValue& object) {
  return {reinterpret_cast<std::uintptr_t>(object.pointer.get()), object.type->hash_code()};
}

}  // namespace

// What a step waits for says so on any thread.
Task Invocation::later(void (Invocation::*step)()) {
  return [self = shared_from_this(), step] {
    const std::shared_ptr<WorkerServices> services = self->weak_services_.lock();
    if (services == nullptr) return;
    services->executor()->post([self, step] { self->guard_late([&] { (self.get()->*step)(); }); });
  };
}

void Invocation::line_up() {
  request_->turn =
      std::make_unique<CallTurn>(request_->method->rules.turns(), services_.server().turns());
  waits_for_turn_.store(true, std::memory_order_release);
  enter_queue();
  const auto take = [self = shared_from_this(), lines = services_.server().lines()] {
    CallTurn& own = *self->request_->turn;
    MutexLock lock(own.mutex);
    if (!own.ended) own.reference = lines->take(key_of(self->request_->call()));
  };
  if (request_->ticket.enter(take, later(&Invocation::await_line))) return await_line();
  sink_->watch_queued(*this);
}

void Invocation::await_line() {
  CallTurn& own = *request_->turn;
  bool is_first = false;
  {
    MutexLock lock(own.mutex);
    if (own.ended) return;
    is_first = own.reference.wait(later(&Invocation::await_object));
  }
  if (is_first) return await_object();
  sink_->watch_queued(*this);
}

void Invocation::await_object() {
  if (!leave_queue()) return;
  throw_if_given_up();
  const Future<AnyValue> target = resolve_target();
  if (target.done()) return await_turn(target.wait());
  target.on_done([self = shared_from_this()](const Future<AnyValue>& resolved) {
    self->guard_late([&] {
      self->throw_if_given_up();
      self->await_turn(resolved.value());
    });
  });
}

void Invocation::await_turn(AnyValue target) {
  CallTurn& own = *request_->turn;
  request_->target = std::move(target);
  own.object = key_of(request_->target);
  const std::optional<std::uint64_t> first = own.turns->first(own.object);
  const auto& chain = request_->call().turns();
  if (first.has_value() && std::find(chain.begin(), chain.end(), *first) != chain.end()) {
    throw_comes_back();
  }
  bool is_its_turn = false;
  enter_queue();
  {
    MutexLock lock(own.mutex);
    own.turn = own.turns->take(own.object);
    own.reference.leave();
    is_its_turn = own.turn.wait(later(&Invocation::begin_turn));
  }
  if (is_its_turn) return begin_turn();
  sink_->watch_queued(*this);
}

void Invocation::begin_turn() {
  if (!leave_queue()) return;
  throw_if_given_up();
  {
    MutexLock lock(request_->turn->mutex);
    request_->turn->running = 1;
    request_->turn->token = request_->turn->turn.token();
  }
  run_method();
}

void Invocation::throw_comes_back() const {
  ErrorInfo info;
  info.code = ErrorCode::kFailedPrecondition;
  info.execution = Execution::kDidNotRun;
  info.origin = ErrorOrigin::kCallee;
  info.message = absl::StrFormat(
      "the call would wait for itself: worker '%s' serves method '%s' with one_at_a_time(), and "
      "the object is having a call that led to this one: %s. Call it before or after, let the "
      "method give up its turn while it waits (OneAtATime::kGivesUpTurn), or call the object "
      "itself rather than its reference",
      services_.self().name, method(), absl::StrJoin(chain(), " -> "));
  throw RpcError(std::move(info));
}

std::string Invocation::explain_turn(std::chrono::nanoseconds waited) const {
  std::size_t ahead = 0;
  {
    MutexLock lock(request_->turn->mutex);
    if (request_->turn->turn.valid()) ahead = request_->turn->turn.ahead();
  }
  const std::string behind =
      ahead == 0 ? std::string("earlier ones of its caller, or the object")
                 : absl::StrFormat("its turn, behind %d calls of the same object", ahead);
  return absl::StrFormat("worker '%s' did not begin the call within %.3g s: it waited for %s",
                         services_.self().name, std::chrono::duration<double>(waited).count(),
                         behind);
}

std::vector<std::uint64_t> Invocation::held_turns() const {
  const auto& chain = request_->call().turns();
  std::vector<std::uint64_t> turns(chain.begin(), chain.end());
  if (request_->turn == nullptr) return turns;
  MutexLock lock(request_->turn->mutex);
  if (request_->turn->token != 0) turns.push_back(request_->turn->token);
  return turns;
}

// ---- Methods that give up their turn while they wait.

bool Invocation::resume_in_turn(std::function<void()> resume) const {
  CallTurn* const own = request_->turn.get();
  if (own == nullptr || !own->gives_up) return true;
  MutexLock lock(own->mutex);
  if (own->ended) return true;
  if (own->running > 0) {
    ++own->running;
    return true;
  }
  own->resuming.push_back(std::move(resume));
  if (own->resuming.size() > 1) return false;
  own->turn = own->turns->take(own->object);
  const auto self = std::const_pointer_cast<Invocation>(shared_from_this());
  if (!own->turn.wait([self] { self->run_soon([self] { self->resume_all(); }); })) return false;
  own->resuming.clear();
  own->running = 1;
  own->token = own->turn.token();
  return true;
}

void Invocation::resume_all() {
  CallTurn& own = *request_->turn;
  std::vector<std::function<void()>> resuming;
  {
    MutexLock lock(own.mutex);
    if (own.ended) return;
    resuming.swap(own.resuming);
    own.running = static_cast<int>(resuming.size());
    own.token = own.turn.token();
  }
  for (std::size_t i = 1; i < resuming.size(); ++i) run_soon(std::move(resuming[i]));
  resuming.front()();
}

// A coroutine goes on also when its worker is gone: it would never be freed.
void Invocation::run_soon(std::function<void()> run) {
  const std::shared_ptr<WorkerServices> services = weak_services_.lock();
  if (services == nullptr || !services->executor()->post(run)) run();
}

void Invocation::suspended_in_turn() const {
  CallTurn* const own = request_->turn.get();
  if (own == nullptr || !own->gives_up) return;
  MutexLock lock(own->mutex);
  if (own->ended || --own->running > 0) return;
  own->token = 0;
  own->turn.leave();
}

// What of the method still waits, a coroutine that it has not awaited, goes on without a turn.
void Invocation::end_turn() {
  std::vector<std::function<void()>> resuming;
  {
    CallTurn& own = *request_->turn;
    MutexLock lock(own.mutex);
    own.ended = true;
    own.token = 0;
    own.reference.leave();
    own.turn.leave();
    resuming.swap(own.resuming);
  }
  for (auto& each : resuming) run_soon(std::move(each));
}

}  // namespace sinew::internal
