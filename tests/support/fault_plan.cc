#include "sinew/tests/support/fault_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sinew/tests/support/fault_plan_impl.h"
#include "sinew/tests/support/faulty_link.h"

namespace sinew::internal {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// In [0, 1).
double as_fraction(std::uint64_t bits) {
  return static_cast<double>(bits >> 11U) / static_cast<double>(std::uint64_t{1} << 53U);
}

}  // namespace

std::optional<FaultPlan::Impl::Verdict> FaultPlan::Impl::decide(const FaultyFrame& frame) {
  MutexLock lock(mutex);
  for (auto& [id, state] : rules) {
    const FaultRule& rule = state.rule;
    if (rule.matches && !rule.matches(frame)) continue;
    const std::uint64_t match = state.matched++;
    if (match < rule.skip || state.chosen >= rule.limit) continue;
    const std::uint64_t draw = mix(mix(seed ^ mix(id)) + match);
    if (as_fraction(draw) >= rule.probability) continue;
    ++state.chosen;
    if (rule.action != FaultAction::kHold) count_hit(id);
    const auto jitter =
        std::chrono::duration_cast<std::chrono::nanoseconds>(rule.jitter * as_fraction(mix(draw)));
    return Verdict{id, rule.action, rule.delay + jitter, rule.behind};
  }
  return std::nullopt;
}

absl::Status FaultPlan::Impl::decide_connect(FaultDirection direction, const std::string& address) {
  MutexLock lock(mutex);
  for (auto& [id, rule] : connect_rules) {
    if (rule.direction != direction || hits[id] >= rule.limit) continue;
    if (rule.matches && !rule.matches(address)) continue;
    count_hit(id);
    return rule.status;
  }
  return absl::OkStatus();
}

FaultPlan::RuleId FaultPlan::Impl::add_connect_rule(ConnectRule rule) {
  MutexLock lock(mutex);
  connect_rules.emplace(next_rule, std::move(rule));
  return next_rule++;
}

void FaultPlan::Impl::run_after(std::chrono::nanoseconds delay,
                                absl::AnyInvocable<void() &&> task) {
  std::shared_ptr<FaultTimer> used;
  {
    MutexLock lock(mutex);
    if (ended) return;
    if (timer == nullptr) timer = make_threaded_fault_timer();
    used = timer;
  }
  used->run_after(delay, std::move(task));
}

void FaultPlan::Impl::hold(RuleId rule, Held frame) {
  MutexLock lock(mutex);
  held[rule].push_back(std::move(frame));
  // Only now: who waited for the hit may release it at once.
  count_hit(rule);
}

void FaultPlan::Impl::count_hit(RuleId rule) {
  ++hits[rule];
  changed.notify_all();
}

std::uint64_t FaultPlan::Impl::add_link(const std::shared_ptr<FaultyLink>& link) {
  MutexLock lock(mutex);
  links.emplace(next_link, link);
  return next_link++;
}

std::vector<std::shared_ptr<FaultyLink>> FaultPlan::Impl::live_links() {
  MutexLock lock(mutex);
  std::vector<std::shared_ptr<FaultyLink>> live;
  for (const auto& [number, link] : links) {
    if (auto alive = link.lock()) live.push_back(std::move(alive));
  }
  return live;
}

void FaultPlan::Impl::forget(const std::shared_ptr<FaultyLink>& link, std::uint64_t number) {
  std::vector<Held> dropped;
  MutexLock lock(mutex);
  links.erase(number);
  for (auto& [rule, frames] : held) {
    for (Held& frame : frames) {
      if (frame.link.lock() == link) dropped.push_back(std::move(frame));
    }
    frames.erase(std::remove_if(frames.begin(), frames.end(),
                                [](const Held& frame) { return frame.link.expired(); }),
                 frames.end());
  }
}

FaultPlan::FaultPlan(std::uint64_t seed, std::shared_ptr<FaultTimer> timer)
    : impl_(std::make_shared<Impl>(seed, std::move(timer))) {}

FaultPlan::~FaultPlan() {
  // Links may outlive the plan for a moment, on the timer's own thread, which cannot join itself.
  std::shared_ptr<FaultTimer> timer;
  MutexLock lock(impl_->mutex);
  impl_->ended = true;
  timer.swap(impl_->timer);
  lock.unlock();
}

FaultPlan::RuleId FaultPlan::add(FaultRule rule) {
  MutexLock lock(impl_->mutex);
  impl_->rules[impl_->next_rule].rule = std::move(rule);
  return impl_->next_rule++;
}

void FaultPlan::remove(RuleId rule) {
  MutexLock lock(impl_->mutex);
  impl_->rules.erase(rule);
  impl_->connect_rules.erase(rule);
}

std::size_t FaultPlan::release(RuleId rule) {
  std::vector<Impl::Held> frames;
  {
    MutexLock lock(impl_->mutex);
    frames = std::exchange(impl_->held[rule], {});
  }
  for (Impl::Held& held : frames) {
    if (auto link = held.link.lock()) {
      link->resume(held.direction, held.lane, std::move(held.frame));
    }
  }
  return frames.size();
}

std::uint64_t FaultPlan::hits(RuleId rule) const {
  MutexLock lock(impl_->mutex);
  return impl_->hits[rule];
}

bool FaultPlan::wait_for_hits(RuleId rule, std::uint64_t hits,
                              std::chrono::nanoseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(impl_->mutex);
  while (impl_->hits[rule] < hits) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    impl_->changed.wait_until(impl_->mutex, deadline);
  }
  return true;
}

FaultPlan::RuleId FaultPlan::fail_connects(std::function<bool(const std::string&)> matches,
                                           absl::Status status, std::uint64_t limit) {
  return impl_->add_connect_rule(
      {std::move(matches), std::move(status), limit, FaultDirection::kOutgoing});
}

FaultPlan::RuleId FaultPlan::refuse_connects(std::function<bool(const std::string&)> matches,
                                             absl::Status status, std::uint64_t limit) {
  return impl_->add_connect_rule(
      {std::move(matches), std::move(status), limit, FaultDirection::kIncoming});
}

std::size_t FaultPlan::break_connections(
    const std::function<bool(const std::string& peer)>& matches) {
  std::size_t broken = 0;
  for (const std::shared_ptr<FaultyLink>& link : impl_->live_links()) {
    if (matches && !matches(link->address())) continue;
    link->break_now("a fault broke the connection");
    ++broken;
  }
  return broken;
}

void FaultPlan::freeze() { impl_->frozen = true; }

void FaultPlan::thaw() {
  impl_->frozen = false;
  for (const std::shared_ptr<FaultyLink>& link : impl_->live_links()) link->thaw();
}

}  // namespace sinew::internal
