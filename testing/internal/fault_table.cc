#include "sinew/testing/internal/fault_table.h"

#include <limits>
#include <utility>

namespace sinew::internal {
namespace {

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

void let_go(std::vector<FaultTable::Parcel> parcels) {
  for (FaultTable::Parcel& parcel : parcels) std::move(parcel.go_on)();
}

}  // namespace

FaultTable::Number FaultTable::add(Rule rule) {
  MutexLock lock(mutex_);
  rules_.emplace(++last_, RuleState{rule.action, rule.code, rule.delay,
                                    MessageChoice(std::move(rule.messages))});
  hits_.emplace(last_, 0);
  return last_;
}

std::optional<FaultTable::Verdict> FaultTable::decide(const testing::Message& message) {
  const bool has_connection = message.caller != message.callee;
  MutexLock lock(mutex_);
  for (auto& [number, state] : rules_) {
    if (state.action == Action::kBreak && !has_connection) continue;
    if (!state.choice.choose(message)) continue;
    if (state.action == Action::kFail || state.action == Action::kBreak) count_hit_locked(number);
    return Verdict{number, state.action, state.code, state.delay};
  }
  return std::nullopt;
}

void FaultTable::count_hit_locked(Number rule) {
  ++hits_[rule];
  changed_.notify_all();
}

std::optional<FaultTable::Number> FaultTable::keep(const Verdict& verdict, Parcel parcel) {
  {
    MutexLock lock(mutex_);
    if (verdict.rule == kLost.rule || rules_.count(verdict.rule) > 0) {
      kept_.emplace(++last_, Kept{verdict.rule, verdict.action, std::move(parcel)});
      // Only now: who has waited for the hit may release it at once.
      count_hit_locked(verdict.rule);
      return last_;
    }
  }
  std::move(parcel.go_on)();
  return std::nullopt;
}

std::optional<FaultTable::Parcel> FaultTable::take(Number parcel) {
  MutexLock lock(mutex_);
  const auto found = kept_.find(parcel);
  if (found == kept_.end()) return std::nullopt;
  Parcel taken = std::move(found->second.parcel);
  kept_.erase(found);
  return taken;
}

void FaultTable::go_on(Number parcel) {
  if (std::optional<Parcel> taken = take(parcel)) std::move(taken->go_on)();
}

void FaultTable::give_up(Number parcel) {
  if (std::optional<Parcel> taken = take(parcel)) std::move(taken->give_up)();
}

std::vector<FaultTable::Parcel> FaultTable::take_locked(Number rule, Action action,
                                                        std::size_t most) {
  std::vector<Parcel> taken;
  for (auto kept = kept_.begin(); kept != kept_.end() && taken.size() < most;) {
    if (kept->second.rule != rule || kept->second.action != action) {
      ++kept;
      continue;
    }
    taken.push_back(std::move(kept->second.parcel));
    kept = kept_.erase(kept);
  }
  return taken;
}

std::int64_t FaultTable::hits(Number rule) const {
  MutexLock lock(mutex_);
  return hits_.at(rule);
}

bool FaultTable::wait_for_hits(Number rule, std::int64_t count,
                               std::chrono::nanoseconds patience) const {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  MutexLock lock(mutex_);
  while (hits_.at(rule) < count) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    changed_.wait_until(mutex_, deadline);
  }
  return true;
}

int FaultTable::release(Number rule, int most) {
  std::vector<Parcel> released;
  {
    MutexLock lock(mutex_);
    released = take_locked(rule, Action::kHold, most < 0 ? 0 : static_cast<std::size_t>(most));
  }
  const int count = static_cast<int>(released.size());
  let_go(std::move(released));
  return count;
}

void FaultTable::remove(Number rule) {
  std::vector<Parcel> held;
  std::vector<Parcel> delayed;
  {
    MutexLock lock(mutex_);
    rules_.erase(rule);
    held = take_locked(rule, Action::kHold, kAll);
    delayed = take_locked(rule, Action::kDelay, kAll);
  }
  let_go(std::move(held));
  let_go(std::move(delayed));
}

void FaultTable::clear() {
  std::map<Number, Kept> kept;
  {
    MutexLock lock(mutex_);
    rules_.clear();
    kept.swap(kept_);
  }
  for (auto& [number, each] : kept) {
    if (each.action == Action::kDrop) {
      std::move(each.parcel.give_up)();
    } else {
      std::move(each.parcel.go_on)();
    }
  }
}

}  // namespace sinew::internal
