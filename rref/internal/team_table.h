#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/retry_policy.h"
#include "sinew/rref/team_event.h"

namespace sinew::internal {

/// Who is in a team, and whose object is to be made, again after a failure. Pure; not thread-safe.
class TeamTable {
 public:
  using Time = Clock::TimePoint;
  /// Of one attempt to make an object. Never used again.
  using Attempt = std::uint64_t;

  explicit TeamTable(const RetryPolicy& policy) : policy_(policy) {}

  /// What follows: objects to make, and what to tell, in order.
  struct Outputs {
    struct Make {
      Attempt attempt = 0;
      WorkerInfo worker;
    };
    std::vector<Make> makes;
    std::vector<TeamEvent> events;
  };

  /// A worker whose name matches is there. One that is known already changes nothing; one that
  /// replaces another of its name comes after that one's loss, or stands for it.
  void on_joined(const WorkerInfo& worker, Outputs& outputs);
  void on_lost(const WorkerInfo& worker, const std::string& reason, Outputs& outputs);
  /// False: that object is not waited for any more.
  bool on_made(Attempt attempt, Outputs& outputs);
  void on_failed(Attempt attempt, const std::string& reason, Time now, Outputs& outputs);
  /// When on_time() is due; Time::max(): it is not.
  Time next_time() const;
  void on_time(Time now, Outputs& outputs);

  enum class Phase { kMaking, kReady, kPausing, kGaveUp };
  struct Member {
    WorkerInfo worker;
    Phase phase = Phase::kMaking;
    Attempt attempt = 0;
    /// In a row, the one under way included.
    int attempts = 0;
    Time retry_at = Time::max();
    /// Of the last one that failed.
    std::string reason;
  };
  /// By name.
  const std::map<std::string, Member>& members() const { return members_; }
  std::size_t ready() const;

 private:
  void make(Member& member, Outputs& outputs);
  Member* find(Attempt attempt);

  const RetryPolicy policy_;
  Attempt last_attempt_ = 0;
  std::map<std::string, Member> members_;
};

}  // namespace sinew::internal
