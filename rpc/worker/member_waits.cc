#include "sinew/rpc/worker/member_waits.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

void MemberWaits::on_event(const MemberEvent& event) {
  if (event.kind == MemberEvent::Kind::kEvicted) return end(absl::AbortedError(event.reason));
  std::vector<Wait> over;
  {
    MutexLock lock(mutex_);
    presence_.on_event(event, clock_.now());
    if (event.kind != MemberEvent::Kind::kJoined) return;
    for (auto each = waits_.begin(); each != waits_.end();) {
      const Wait& wait = each->second;
      const bool is_for_it =
          wait.name == event.worker.name && wait.other_than != event.worker.incarnation;
      if (is_for_it) over.push_back(std::move(each->second));
      each = is_for_it ? waits_.erase(each) : std::next(each);
    }
  }
  for (const Wait& wait : over) {
    if (wait.timer != 0) timers_.cancel(wait.timer);
    wait.promise.try_set_value(event.worker);
  }
}

Future<WorkerInfo> MemberWaits::wait_async(std::string name, Incarnation other_than,
                                           Clock::TimePoint deadline, Executor* executor) {
  const Promise<WorkerInfo> promise(executor);
  std::optional<WorkerInfo> there;
  absl::Status ended;
  {
    MutexLock lock(mutex_);
    ended = ended_;
    there = presence_.find(name, other_than);
    // A caller that has seen a call to it fail waits for the next one.
    if (there.has_value() && is_lost_(*there)) other_than = std::exchange(there, {})->incarnation;
    if (ended.ok() && !there.has_value()) {
      const std::uint64_t number = ++last_number_;
      Wait wait{std::move(name), other_than, clock_.now(), promise};
      if (deadline != Clock::TimePoint::max()) {
        wait.timer = timers_.run_at(deadline, [weak = weak_from_this(), number] {
          if (const auto self = weak.lock()) self->on_deadline(number);
        });
      }
      waits_.emplace(number, std::move(wait));
      return promise.future();
    }
  }
  ended.ok() ? promise.set_value(*std::move(there)) : promise.set_error(make_error(ended));
  return promise.future();
}

void MemberWaits::on_deadline(std::uint64_t number) {
  std::optional<Wait> wait;
  std::string absence;
  const Clock::TimePoint now = clock_.now();
  {
    MutexLock lock(mutex_);
    const auto found = waits_.find(number);
    if (found == waits_.end()) return;
    wait = std::move(found->second);
    waits_.erase(found);
    absence = presence_.absence(wait->name, now);
  }
  const double seconds = std::chrono::duration<double>(now - wait->begun).count();
  wait->promise.try_set_error(
      make_error(about_peer(absl::DeadlineExceededError(absl::StrFormat(
                                "waited %.3g s for worker '%s': %s", seconds, wait->name, absence)),
                            wait->name)));
}

std::string MemberWaits::absence(const std::string& name) {
  MutexLock lock(mutex_);
  return presence_.absence(name, clock_.now());
}

void MemberWaits::end(const absl::Status& reason) {
  std::map<std::uint64_t, Wait> waits;
  {
    MutexLock lock(mutex_);
    if (ended_.ok()) ended_ = reason;
    waits.swap(waits_);
  }
  for (const auto& [number, wait] : waits) {
    if (wait.timer != 0) timers_.cancel(wait.timer);
    wait.promise.try_set_error(make_error(reason));
  }
}

}  // namespace sinew::internal
