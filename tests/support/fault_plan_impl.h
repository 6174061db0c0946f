#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/tests/support/fault_plan.h"

namespace sinew::internal {

class FaultyLink;

/// The rules and what they hold. Never calls a link with the mutex held.
struct FaultPlan::Impl {
  struct RuleState {
    FaultRule rule;
    std::uint64_t matched = 0;
    std::uint64_t chosen = 0;
  };
  struct ConnectRule {
    std::function<bool(const std::string&)> matches;
    absl::Status status;
    std::uint64_t limit;
    FaultDirection direction;
  };
  struct Held {
    std::weak_ptr<FaultyLink> link;
    FaultDirection direction;
    Lane lane;
    Frame frame;
  };
  /// What a rule decided: the rule, and the delay with its jitter.
  struct Verdict {
    RuleId id;
    FaultAction action;
    std::chrono::nanoseconds delay;
    int behind;
  };

  Impl(std::uint64_t the_seed, std::shared_ptr<FaultTimer> the_timer)
      : seed(the_seed), timer(std::move(the_timer)) {}

  std::optional<Verdict> decide(const FaultyFrame& frame);
  /// The status with which a connect to (or from) the address fails; OK when it may go on.
  absl::Status decide_connect(FaultDirection direction, const std::string& address);
  RuleId add_connect_rule(ConnectRule rule);
  void run_after(std::chrono::nanoseconds delay, absl::AnyInvocable<void() &&> task);
  void hold(RuleId rule, Held frame);
  void count_hit(RuleId rule) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  /// Returns the link's number.
  std::uint64_t add_link(const std::shared_ptr<FaultyLink>& link);
  std::vector<std::shared_ptr<FaultyLink>> live_links();
  /// The link is down: drops what is held of it.
  void forget(const std::shared_ptr<FaultyLink>& link, std::uint64_t number);

  const std::uint64_t seed;
  std::atomic<bool> frozen{false};
  mutable Mutex mutex;
  CondVar changed;
  std::shared_ptr<FaultTimer> timer ABSL_GUARDED_BY(mutex);
  bool ended ABSL_GUARDED_BY(mutex) = false;
  RuleId next_rule ABSL_GUARDED_BY(mutex) = 1;
  std::map<RuleId, RuleState> rules ABSL_GUARDED_BY(mutex);
  std::map<RuleId, ConnectRule> connect_rules ABSL_GUARDED_BY(mutex);
  std::map<RuleId, std::uint64_t> hits ABSL_GUARDED_BY(mutex);
  std::map<RuleId, std::vector<Held>> held ABSL_GUARDED_BY(mutex);
  std::uint64_t next_link ABSL_GUARDED_BY(mutex) = 1;
  std::map<std::uint64_t, std::weak_ptr<FaultyLink>> links ABSL_GUARDED_BY(mutex);
};

}  // namespace sinew::internal
