#include "sinew/rref/internal/team_core.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/method_rules.h"

namespace sinew::internal {
namespace {

std::string reason_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const RpcError& rpc) {
    return rpc.message();
  } catch (const std::exception& other) {
    return other.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

const char* text_of(TeamTable::Phase phase) {
  switch (phase) {
    case TeamTable::Phase::kMaking:
      return "its object is being made";
    case TeamTable::Phase::kReady:
      return "ready";
    case TeamTable::Phase::kPausing:
      return "its object could not be made, and is tried again";
    case TeamTable::Phase::kGaveUp:
      return "its object could not be made, and is not tried again";
  }
  return "?";
}

std::shared_ptr<WorkerServices> services_of(const Worker& worker) {
  auto services = WorkerAccess::services(worker);
  if (services == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition, "a team needs a worker, and this one is none");
  }
  return services;
}

}  // namespace

bool may_go_elsewhere(const std::exception_ptr& error, bool is_idempotent) {
  try {
    std::rethrow_exception(error);
  } catch (const RpcError& rpc) {
    switch (rpc.code()) {
      case ErrorCode::kUnavailable:
      case ErrorCode::kResourceExhausted:
        return rpc.execution() == Execution::kDidNotRun || is_idempotent;
      default:
        return false;
    }
  } catch (...) {
    return false;
  }
}

void throw_published_made(const std::string& members) {
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat("team '%s' is of objects that its members have published: it "
                                 "makes none, and takes no arguments for a constructor",
                                 members));
}

void throw_made_of_something(const std::string& members) {
  throw RpcError(
      ErrorCode::kInvalidArgument,
      absl::StrFormat("team '%s' makes an object at each member, whose constructor takes "
                      "arguments, and none are given; published objects are named as "
                      "\"%s/name\"",
                      members, members));
}

void throw_no_team() {
  throw RpcError(ErrorCode::kFailedPrecondition, "this Team is none: Worker::team() makes one");
}

TeamCore::TeamCore(Worker worker, TeamOptions options, Make make)
    : worker_(std::move(worker)),
      options_(std::move(options)),
      make_(std::move(make)),
      workers_(options_.members.substr(0, options_.members.find('/'))),
      events_(std::make_shared<Strand>(services_of(worker_)->executor()->runner())),
      table_(checked(options_.making)) {
  // Throws for a pattern that no name can match.
  static_cast<void>(MethodRules().allow(workers_));
}

TeamCore::~TeamCore() = default;

void TeamCore::start() {
  watch_ = worker_.on_member([weak = weak_from_this()](const MemberEvent& event) {
    if (const auto self = weak.lock()) self->on_member(event);
  });
  TeamTable::Outputs outputs;
  {
    MutexLock lock(mutex_);
    for (const WorkerInfo& member : worker_.workers()) {
      if (matches(member)) table_.on_joined(member, outputs);
    }
  }
  perform(std::move(outputs));
}

bool TeamCore::matches(const WorkerInfo& worker) const {
  if (!options_.includes_self && worker.incarnation == worker_.info().incarnation) return false;
  return matches_pattern(workers_, worker.name);
}

void TeamCore::on_member(const MemberEvent& event) {
  if (!matches(event.worker)) return;
  TeamTable::Outputs outputs;
  {
    MutexLock lock(mutex_);
    switch (event.kind) {
      case MemberEvent::Kind::kJoined:
        if (options_.takes_newcomers) table_.on_joined(event.worker, outputs);
        break;
      case MemberEvent::Kind::kLost:
      case MemberEvent::Kind::kLeft:
        table_.on_lost(event.worker, event.reason, outputs);
        break;
      case MemberEvent::Kind::kSuspected:
      case MemberEvent::Kind::kTrusted:
      case MemberEvent::Kind::kEvicted:
        return;
    }
  }
  perform(std::move(outputs));
}

void TeamCore::perform(TeamTable::Outputs outputs) {
  std::vector<Promise<void>> reached;
  {
    MutexLock lock(mutex_);
    for (const TeamEvent& event : outputs.events) {
      if (event.kind == TeamEvent::Kind::kLost) objects_.erase(event.worker.incarnation);
    }
    const std::size_t count = objects_.size();
    const auto is_reached = [count](const Waiter& waiter) { return waiter.count <= count; };
    for (const Waiter& waiter : waiters_) {
      if (is_reached(waiter)) reached.push_back(waiter.promise);
    }
    waiters_.erase(std::remove_if(waiters_.begin(), waiters_.end(), is_reached), waiters_.end());
  }
  if (options_.on_event) {
    for (TeamEvent& event : outputs.events) {
      events_->post([weak = weak_from_this(), event = std::move(event)] {
        if (const auto self = weak.lock()) self->options_.on_event(event);
      });
    }
  }
  for (const Promise<void>& each : reached) each.try_set_value();
  for (const TeamTable::Outputs::Make& make : outputs.makes) make_one(make);
  arm();
}

void TeamCore::make_one(const TeamTable::Outputs::Make& make) {
  Future<Handle> made;
  try {
    made = make_(worker_, make.worker);
  } catch (...) {
    made = make_failed_future<Handle>(std::current_exception());
  }
  made.on_done([weak = weak_from_this(), attempt = make.attempt,
                member = make.worker](const Future<Handle>& done) {
    if (const auto self = weak.lock()) self->on_made(attempt, member, done);
  });
}

void TeamCore::on_made(TeamTable::Attempt attempt, const WorkerInfo& member,
                       const Future<Handle>& made) {
  TeamTable::Outputs outputs;
  const std::exception_ptr error = made.error();
  {
    MutexLock lock(mutex_);
    if (error != nullptr) {
      const std::shared_ptr<WorkerServices> services = WorkerAccess::services(worker_);
      table_.on_failed(attempt, reason_of(error), services->clock().now(), outputs);
    } else if (table_.on_made(attempt, outputs)) {
      objects_[member.incarnation] = {member, made.value(),
                                      std::make_shared<std::atomic<std::int64_t>>(0)};
    }
  }
  perform(std::move(outputs));
}

// One timer is enough: the earliest pause, and the next one when that is over.
void TeamCore::arm() {
  Clock::TimePoint when;
  {
    MutexLock lock(mutex_);
    when = table_.next_time();
    if (when >= armed_for_) return;
    armed_for_ = when;
  }
  const std::shared_ptr<WorkerServices> services = WorkerAccess::services(worker_);
  services->wait_until(when).on_done([weak = weak_from_this()](const Future<void>& over) {
    const auto self = weak.lock();
    // The worker has ended.
    if (self == nullptr || over.error() != nullptr) return;
    TeamTable::Outputs outputs;
    {
      MutexLock lock(self->mutex_);
      self->armed_for_ = Clock::TimePoint::max();
      self->table_.on_time(WorkerAccess::services(self->worker_)->clock().now(), outputs);
    }
    self->perform(std::move(outputs));
  });
}

std::vector<TeamCore::Ready> TeamCore::ready() const {
  std::vector<Ready> all;
  {
    MutexLock lock(mutex_);
    for (const auto& [incarnation, object] : objects_) all.push_back(object);
  }
  std::sort(all.begin(), all.end(),
            [](const Ready& a, const Ready& b) { return a.worker.rank < b.worker.rank; });
  return all;
}

std::optional<TeamCore::Ready> TeamCore::least_busy(const std::vector<Incarnation>& without) const {
  MutexLock lock(mutex_);
  const Ready* least = nullptr;
  std::int64_t fewest = 0;
  const std::size_t count = objects_.size();
  const std::uint64_t first = next_++;
  // From another one each time, so that the idle ones take turns.
  for (std::size_t i = 0; i < count; ++i) {
    const auto offset = static_cast<std::ptrdiff_t>((first + i) % count);
    const Ready& candidate = std::next(objects_.begin(), offset)->second;
    const Incarnation incarnation = candidate.worker.incarnation;
    if (std::find(without.begin(), without.end(), incarnation) != without.end()) continue;
    const std::int64_t in_flight = candidate.in_flight->load(std::memory_order_relaxed);
    if (least != nullptr && in_flight >= fewest) continue;
    least = &candidate;
    fewest = in_flight;
  }
  return least == nullptr ? std::nullopt : std::optional<Ready>(*least);
}

void TeamCore::wait_for(std::size_t count, std::optional<std::chrono::nanoseconds> timeout) {
  const std::shared_ptr<WorkerServices> services = WorkerAccess::services(worker_);
  const std::chrono::nanoseconds time = timeout.value_or(services->default_timeout());
  const Promise<void> promise(services->executor().get());
  std::uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    if (objects_.size() >= count) return;
    number = ++last_waiter_;
    waiters_.push_back({number, count, promise});
  }
  const Future<void> ready = promise.future();
  try {
    time == kNoTimeout ? ready.wait() : ready.wait_for(time);
  } catch (const RpcError& error) {
    {
      MutexLock lock(mutex_);
      const auto is_it = [number](const Waiter& waiter) { return waiter.number == number; };
      waiters_.erase(std::remove_if(waiters_.begin(), waiters_.end(), is_it), waiters_.end());
    }
    if (error.code() != ErrorCode::kDeadlineExceeded) throw;
    throw RpcError(ErrorCode::kDeadlineExceeded,
                   absl::StrFormat("team '%s' waited for %d members that are ready: %s",
                                   options_.members, count, describe()));
  }
}

std::string TeamCore::describe() const {
  MutexLock lock(mutex_);
  if (table_.members().empty()) return "no member of the job has such a name";
  std::vector<std::string> texts;
  for (const auto& [name, member] : table_.members()) {
    texts.push_back(absl::StrCat("'", name, "' ", text_of(member.phase)));
    if (member.phase != TeamTable::Phase::kReady && !member.reason.empty()) {
      absl::StrAppend(&texts.back(), " (", member.reason, ")");
    }
  }
  return absl::StrJoin(texts, "; ");
}

}  // namespace sinew::internal
