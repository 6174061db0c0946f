#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sinew/launch/internal/job_state.h"

namespace sinew::internal::sim {

/// A job and what may happen to it: processes that end, well or not, or do not when they are told
/// to; that cannot be started; requests to stop, also by several ways; time that passes. Copyable.
class JobModel {
 public:
  JobModel(const JobRules& rules, int stops);

  /// Calls `visit` with each state that may come next, and what led there.
  using Visit = std::function<void(const JobModel& next, const std::string& step)>;
  void each_next(const Visit& visit) const;
  /// Which rule does not hold in this state; empty if all do.
  std::string broken() const;
  /// Lets time go on with processes that end only when they are killed: what does not come then
  /// that must.
  std::string settle() const;
  std::string key() const;

 private:
  enum class Life : std::uint8_t { kNone, kAlive, kDead };
  struct Real {
    Life life = Life::kNone;
    bool is_told = false;
    bool is_killed = false;
    ProcessEnd end;
  };

  /// Does what the job says, if it says anything. `can_start`: whether a process can be started.
  enum class CanStart { kYes, kNo };
  bool act(CanStart can_start);
  void end(std::size_t process, ProcessEnd how);
  void stop();
  /// Whether a request that comes now is the first one by another way.
  bool is_same_stop() const;
  void tick();
  void pass_until(JobState::TimePoint when);
  bool leaders_are_done() const;
  bool has_to_end() const;
  bool spares_one() const;
  bool has_to_restart() const;
  std::string wrong_at_end() const;

  JobState job_;
  int stops_left_;
  std::vector<Real> real_;
  JobState::TimePoint now_{};
  // What an onlooker knows of the attempt.
  std::optional<std::size_t> failed_first_;
  int attempts_ = 1;
  // Requests, each once.
  int stops_ = 0;
  std::optional<JobState::TimePoint> first_stop_;
  // Since all were to end.
  bool time_has_passed_ = false;
  std::string wrong_;
};

}  // namespace sinew::internal::sim
