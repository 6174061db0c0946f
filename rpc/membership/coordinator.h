#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/member_codec.h"

namespace sinew::internal {

/// A worker that asks to join.
struct JoinAsk {
  Member member;
  std::string job;
  int world_size = 0;
};

/// Decides who is in the job. Pure: no I/O, no clock. Not thread-safe.
class Coordinator {
 public:
  struct Verdict {
    enum class Kind {
      /// `worker` is in the list now (or was already) and the world is complete.
      kAdmitted,
      /// `worker` is in the list now; a fixed world waits for the other ranks.
      kWaits,
      /// `incumbents` hold the name or the rank. drop() those that turn out to be gone and consider
      /// again; if one
      /// lives, refuse() says what to answer.
      kProbe,
      /// `refusal` is the answer.
      kRefused,
    };
    Kind kind = Kind::kRefused;
    WorkerInfo worker;
    std::vector<WorkerInfo> incumbents;
    absl::Status refusal;
  };

  /// `view` has this worker in it. A world that was complete once stays so when members go. Who
  /// asks for no rank gets the smallest free one from 1 on: rank 0 is the founder's, who gets it
  /// back when it is started again, and of those who ask for it.
  Coordinator(std::string job, MemberView view, bool was_complete);

  Verdict consider(const JoinAsk& ask);
  /// What the worker that asked is told when `incumbent` lives. Remembered for missing_text().
  absl::Status refuse(const JoinAsk& ask, const WorkerInfo& incumbent);
  /// Takes one incarnation off the list; false if it was not on it. `reason` of a loss: as in
  /// note_lost().
  bool drop(const WorkerInfo& worker, Departure how, const std::string& reason = {});

  /// Every rank of a fixed world has been there. Open membership is always complete.
  bool complete() const { return complete_; }
  std::vector<int> missing_ranks() const;
  /// "3 of 4 workers joined within 60 s; missing ranks: 2", and why joins for those ranks were
  /// refused.
  absl::Status missing_text(std::chrono::nanoseconds waited) const;
  const MemberView& view() const { return view_; }
  const Member* find(const WorkerInfo& worker) const;

 private:
  absl::Status check(const JoinAsk& ask) const;
  absl::Status note_refusal(const JoinAsk& ask, absl::Status refusal);
  std::int32_t smallest_free_rank() const;
  void update_complete();

  const std::string job_;
  MemberView view_;
  bool complete_ = false;
  // By rank that was asked for; at most one text each.
  std::map<std::int32_t, std::string> refusals_;
};

/// "1.5 s"
std::string seconds_text(std::chrono::nanoseconds duration);

}  // namespace sinew::internal
