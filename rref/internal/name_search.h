#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// How one find() goes: where the named object is, at which incarnation of its worker, and what
/// comes next. Without messages, a clock or a lock: the caller takes the step that it is told, and
/// tells how that went. One step is under way at a time.
///
///     seek the worker -> ask it for the name, until it has it -> fetch the reference
///
/// When the worker is lost on the way, another incarnation of it is sought; one that only cannot be
/// reached is asked again after a pause. Each step ends at the
/// deadline at the latest, with kDeadlineExceeded.
///
/// Copyable, for tests that look at what may follow from each state.
class NameSearch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  /// What is to be done next.
  struct Step {
    enum class Kind {
      /// Wait for a member of the worker's name that is not the incarnation `worker.incarnation`,
      /// for `hold` at most.
      kSeek,
      /// Ask `worker`, which answers after `hold` if it has no such name by then.
      kAsk,
      /// Fetch the reference from `worker`.
      kFetch,
      /// Nothing: it has what was sought.
      kSucceed,
      /// Nothing: `error` says why.
      kFail,
      /// Nothing: it fails with the error that it was told last.
      kFailLikewise,
    };
    Kind kind = Kind::kFail;
    WorkerInfo worker;
    Duration hold{0};
    absl::Status error;
  };
  /// What is known of a worker with which a step has failed.
  enum class Fate { kLost, kMayLive };

  /// Both names are valid. `deadline` may be TimePoint::max().
  NameSearch(std::string worker, std::string object, TimePoint now, TimePoint deadline);

  Step begin();
  /// How kSeek went.
  Step on_member(const WorkerInfo& worker, TimePoint now);
  Step on_seek_failed(const absl::Status& error, TimePoint now);
  /// How kAsk went.
  Step on_published();
  /// `nearest`: of `published` names that the worker has, those most like the one that it has not.
  Step on_absent(std::vector<std::string> nearest, std::size_t published, TimePoint now);
  Step on_ask_failed(const absl::Status& error, Fate fate, TimePoint now);
  /// How kFetch went.
  Step on_fetched();
  Step on_fetch_failed(const absl::Status& error, Fate fate, TimePoint now);

  /// No request needs to be held for longer.
  static constexpr Duration kMostHold = std::chrono::minutes(1);
  /// Before the deadline the worker is asked what it has instead, for the error.
  static constexpr Duration kMostMargin = std::chrono::seconds(1);
  /// Before one that could not be reached is asked again; twice as long each time.
  static constexpr Duration kFirstPause = std::chrono::milliseconds(200);
  static constexpr Duration kMostPause = std::chrono::seconds(5);
  /// So often may the name of one incarnation vanish between being found and being fetched.
  static constexpr int kMostVanished = 8;

  /// Appends what this state is, but for the times.
  void append_key(std::string& key) const;

 private:
  enum class State { kIdle, kSeeks, kAsks, kFetches, kOver };

  Step seek();
  Step pause(TimePoint now);
  Step ask(TimePoint now);
  Step fail(const absl::Status& error);
  Step fail_likewise();
  Step fail_overdue(TimePoint now);
  /// The worker's own refusals are final, its loss is not.
  Step on_error(const absl::Status& error, Fate fate, TimePoint now);
  std::string address() const { return worker_name_ + "/" + object_; }

  std::string worker_name_;
  std::string object_;
  TimePoint begun_;
  TimePoint deadline_;
  State state_ = State::kIdle;
  // Whom it asks, or asked last.
  WorkerInfo worker_;
  // Why it could not be asked, or why the one before could not.
  absl::Status lost_;
  // It may live: how long to wait until it is asked again. 0: it is not.
  Duration pause_{0};
  TimePoint asked_at_;
  Duration hold_{0};
  // What worker_ has published, the last time that it said so.
  std::optional<std::vector<std::string>> nearest_;
  std::size_t published_ = 0;
  int vanished_ = 0;
};

}  // namespace sinew::internal
