#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/testing/internal/message_choice.h"

namespace sinew::internal {

/// The faults of a test, and the messages that they keep. Without workers and transports.
/// Thread-safe; what goes on or is given up does so on the calling thread, with no lock held.
class FaultTable {
 public:
  using Number = std::uint64_t;
  enum class Action { kFail, kDrop, kDelay, kHold, kBreak };
  struct Rule {
    Action action;
    testing::Messages messages;
    ErrorCode code = ErrorCode::kUnavailable;
    std::chrono::nanoseconds delay{0};
  };
  /// What becomes of a message.
  struct Verdict {
    // 0: of none.
    Number rule;
    Action action;
    ErrorCode code;
    std::chrono::nanoseconds delay;
  };
  /// It is lost, whatever the rules say.
  static constexpr Verdict kLost{0, Action::kDrop, ErrorCode::kUnavailable, {}};
  /// A message that is kept: exactly one of the two runs.
  struct Parcel {
    absl::AnyInvocable<void() &&> go_on;
    absl::AnyInvocable<void() &&> give_up;
  };

  Number add(Rule rule);
  /// None: nothing happens to it.
  std::optional<Verdict> decide(const testing::Message& message);
  /// Keeps the message that `verdict` (kDrop, kDelay, kHold) was given of. None: the rule has been
  /// removed, so it has gone on.
  std::optional<Number> keep(const Verdict& verdict, Parcel parcel);
  /// Of a message that is kept, if it still is.
  void go_on(Number parcel);
  void give_up(Number parcel);

  std::int64_t hits(Number rule) const;
  /// False when there were not so many within `patience`.
  bool wait_for_hits(Number rule, std::int64_t count, std::chrono::nanoseconds patience) const;
  int release(Number rule, int most);
  void remove(Number rule);
  void clear();

 private:
  struct RuleState {
    Action action;
    ErrorCode code;
    std::chrono::nanoseconds delay;
    MessageChoice choice;
  };
  struct Kept {
    Number rule;
    Action action;
    Parcel parcel;
  };

  void count_hit_locked(Number rule) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// In the order in which they came.
  std::vector<Parcel> take_locked(Number rule, Action action, std::size_t most)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Parcel> take(Number parcel);

  mutable Mutex mutex_;
  mutable CondVar changed_;
  Number last_ ABSL_GUARDED_BY(mutex_) = 0;
  // By number, so in the order in which they were added.
  std::map<Number, RuleState> rules_ ABSL_GUARDED_BY(mutex_);
  // Also of rules that have been removed, and of none.
  std::map<Number, std::int64_t> hits_ ABSL_GUARDED_BY(mutex_);
  std::map<Number, Kept> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
