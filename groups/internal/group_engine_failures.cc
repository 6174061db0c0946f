// What takes too long, what goes wrong, and how a group ends.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/groups/internal/group_engine.h"
#include "sinew/groups/internal/groups_manager.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

// An operation that takes longer is written on the board.
constexpr std::chrono::milliseconds kLookAfter{250};
// And looked at again so often.
constexpr std::chrono::milliseconds kLookAgain{1000};
// The first looks of operations with short limits: before the others give up.
constexpr int kLooksInLimit = 4;

std::string seconds_text(std::chrono::nanoseconds time) {
  return absl::StrFormat("%g s", std::chrono::duration<double>(time).count());
}

}  // namespace

void GroupEngine::arm(Id id) {
  MutexLock lock(mutex_);
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  Pending& pending = *found->second;
  const Clock::TimePoint now = Clock::system().now();
  const std::chrono::nanoseconds first =
      std::min<std::chrono::nanoseconds>(kLookAfter, (pending.deadline - now) / kLooksInLimit);
  pending.timer = runtime_.timers().run_at(now + first, [weak = weak_from_this(), id] {
    if (auto self = weak.lock()) self->on_timer(id);
  });
}

void GroupEngine::on_timer(Id id) {
  bool is_over = false;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    Pending& pending = *found->second;
    const Clock::TimePoint now = Clock::system().now();
    is_over = now >= pending.deadline;
    if (!is_over) {
      pending.timer =
          runtime_.timers().run_at(std::min<Clock::TimePoint>(pending.deadline, now + kLookAgain),
                                   [weak = weak_from_this(), id] {
                                     if (auto self = weak.lock()) self->on_timer(id);
                                   });
    }
  }
  runtime_.executor().post([self = shared_from_this(), id, is_over] {
    if (is_over) {
      self->time_out(id);
    } else {
      self->look(id);
    }
  });
}

void GroupEngine::look(Id id) {
  std::shared_ptr<Pending> pending;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end() || life_.state() != GroupLife::State::kOpen) return;
    pending = found->second;
    // Only the oldest collective is written: no rank can be at a later one without it.
    for (const auto& [other, entry] : pending_) {
      if (entry->number != 0 && entry->number < pending->number) return;
    }
  }
  const absl::Status over = board_.end();
  if (!over.ok()) return fail(over);
  if (pending->number == 0) return;
  board_.publish(pending->number, pending->operation.signature);
  if (board_.check_agreement(pending->number, pending->operation.signature).ok()) return;
  // The others are about to write what they call: then all can be named.
  runtime_.timers().run_at(Clock::system().now() + kLookAfter, [weak = weak_from_this(), pending] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->runtime_.executor().post([self, pending] {
      const absl::Status agreed =
          self->board_.check_agreement(pending->number, pending->operation.signature);
      if (!agreed.ok()) self->fail(agreed);
    });
  });
}

void GroupEngine::time_out(Id id) {
  const std::shared_ptr<Pending> pending = find(id);
  if (pending == nullptr) return;
  const Operation& operation = pending->operation;
  std::string text = absl::StrCat(operation.signature.text(), " was not done within ",
                                  seconds_text(operation.timeout.value_or(setup_.timeout)));
  if (pending->number == 0) {
    absl::StrAppend(&text, operation.peer < 0
                               ? ": no rank has sent anything of that tag, type and size"
                               : absl::StrCat(": ", member_text(operation.peer),
                                              " has not come, or with another tag, type or size"));
    return fail(absl::DeadlineExceededError(text));
  }
  board_.publish(pending->number, operation.signature);
  const absl::Status agreed = board_.check_agreement(pending->number, operation.signature);
  if (!agreed.ok()) return fail(agreed);
  const std::vector<int> missing = board_.missing_ranks(pending->number);
  const std::vector<int> awaited = backend_for(operation.device.type()).awaited_ranks();
  if (!missing.empty()) {
    absl::StrAppend(&text, ": ", rank_list(missing),
                    missing.size() == 1 ? " has not come to it" : " have not come to it");
  } else if (!awaited.empty()) {
    absl::StrAppend(&text, ": data of ", rank_list(awaited), " have not come");
  }
  fail(absl::DeadlineExceededError(text));
}

std::optional<Worker> GroupEngine::worker() const {
  const auto services = watched_.lock();
  if (services == nullptr) return std::nullopt;
  return services->handle();
}

void GroupEngine::watch(const Worker& worker) {
  watched_ = WorkerAccess::services(worker)->weak_services();
  GroupsManager::of(worker)->add(weak_from_this());
  watch_ = worker.on_member([weak = weak_from_this()](const MemberEvent& event) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    if (event.kind == MemberEvent::Kind::kEvicted) {
      self->runtime_.executor().post([self, reason = event.reason] {
        self->fail(absl::AbortedError(absl::StrCat("this worker is out of its job: ", reason)));
      });
      return;
    }
    if (event.kind != MemberEvent::Kind::kLost) return;
    const auto& workers = self->setup_.workers;
    const auto found = std::find(workers.begin(), workers.end(), event.worker);
    if (found == workers.end()) return;
    self->on_lost(static_cast<int>(found - workers.begin()), event.reason);
  });
  // Who was lost before the watch began.
  const std::vector<WorkerInfo> alive = worker.workers();
  for (int rank = 0; rank < size(); ++rank) {
    const WorkerInfo& member = setup_.workers[static_cast<std::size_t>(rank)];
    if (std::find(alive.begin(), alive.end(), member) == alive.end()) {
      on_lost(rank, "it has gone");
    }
  }
}

void GroupEngine::on_lost(int rank, const std::string& reason) {
  // This waits for the store, which may be at the lost worker: not on the worker's thread.
  runtime_.executor().post([self = shared_from_this(), rank, reason] {
    self->fail(absl::UnavailableError(absl::StrCat(self->member_text(rank), " is lost: ", reason)));
  });
}

std::string GroupEngine::member_text(int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  if (at >= setup_.workers.size()) return absl::StrCat("rank ", rank);
  return absl::StrCat("rank ", rank, " (worker '", setup_.workers[at].name, "')");
}

absl::Status GroupEngine::reason_of(const std::exception_ptr& error,
                                    const Operation& operation) const {
  const ErrorInfo info = describe(error);
  const std::vector<int> broken = backend_for(operation.device.type()).broken_ranks();
  if (!broken.empty()) {
    std::string text =
        absl::StrCat(member_text(broken.front()), " has ended or left the group: its connection ",
                     "broke before or during ", operation.signature.text());
    if (broken.size() > 1) {
      // Who hears of one that has ended may end too.
      std::vector<std::string> later;
      for (std::size_t at = 1; at < broken.size(); ++at) later.push_back(member_text(broken[at]));
      absl::StrAppend(&text, "; after it, and maybe since it has, so did that of ",
                      absl::StrJoin(later, " and then of "));
    }
    return absl::UnavailableError(absl::StrCat(text, " (", info.message, ")"));
  }
  return absl::Status(info.code,
                      absl::StrCat(operation.signature.text(), " failed: ", info.message));
}

void GroupEngine::fail(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    if (!life_.begin_failing(reason)) return;
  }
  const std::vector<int> readers = readers_of_end();
  // Before connections are closed: a rank that notices the close finds the reason here.
  const absl::Status agreed = board_.agree_on_end(reason);
  std::vector<Pending> ended;
  {
    MutexLock lock(mutex_);
    ended = take(life_.fail(agreed));
  }
  abort_backends(agreed);
  // Who is told may end at once.
  board_.await_readers(readers);
  const std::exception_ptr error = make_error(agreed);
  for (Pending& pending : ended) pending.operation.done(error, -1);
}

std::vector<int> GroupEngine::readers_of_end() const {
  std::vector<int> readers;
  // Over a worker, that of the job's first rank serves it.
  const bool serves =
      setup_.store_server == rank() ||
      (!setup_.workers.empty() && setup_.job_ranks[static_cast<std::size_t>(rank())] == 0);
  if (!serves) return readers;
  for (int reader = 0; reader < size(); ++reader) {
    const bool is_gone = std::any_of(backends_.begin(), backends_.end(), [&](const auto& entry) {
      const std::vector<int> broken = entry.second->broken_ranks();
      return std::find(broken.begin(), broken.end(), reader) != broken.end();
    });
    if (reader != rank() && !is_gone) readers.push_back(reader);
  }
  return readers;
}

void GroupEngine::fail_and_throw(const absl::Status& reason) {
  fail(reason);
  throw_error(reason);
}

void GroupEngine::abort_backends(const absl::Status& reason) {
  for (const auto& [device, backend] : backends_) backend->abort(reason);
}

std::vector<GroupEngine::Pending> GroupEngine::take(const std::vector<Id>& ids) {
  mutex_.assert_held();
  std::vector<Pending> taken;
  for (const Id id : ids) {
    const auto found = pending_.find(id);
    if (found == pending_.end()) continue;
    if (found->second->timer != 0) runtime_.timers().cancel(found->second->timer);
    taken.push_back(*found->second);
    pending_.erase(found);
  }
  queue_.clear();
  return taken;
}

void GroupEngine::destroy() {
  std::vector<Pending> ended;
  {
    MutexLock lock(mutex_);
    if (life_.state() == GroupLife::State::kDestroyed) return;
    ended = take(life_.destroy());
  }
  watch_.end();
  const absl::Status reason =
      absl::CancelledError(absl::StrCat("the group '", setup_.name, "' was destroyed here"));
  abort_backends(reason);
  const std::exception_ptr error = make_error(reason);
  for (Pending& pending : ended) pending.operation.done(error, -1);
}

}  // namespace sinew::internal
