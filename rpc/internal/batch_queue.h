#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/batcher_options.h"

namespace sinew::internal {

/// The calls that wait at a Batcher, and the rules by which they leave: as a batch, or alone when
/// their caller does not wait any more. Pure: the holder tells the time, runs the batches, and asks
/// again at look_again() and after each change. Not thread-safe.
class BatchQueue {
 public:
  /// A call that waits; they grow in the order of arrival.
  enum class Ticket : std::uint64_t {};

  /// kInvalidArgument that names the option.
  static absl::Status check(const BatcherOptions& options);

  /// The options must pass check().
  explicit BatchQueue(const BatcherOptions& options) : options_(options) {}

  /// A call that comes now, whose caller waits until `deadline`. kResourceExhausted when
  /// `max_queued` wait. Take out what has expired first.
  absl::StatusOr<Ticket> add(Clock::TimePoint now, Clock::TimePoint deadline);
  /// The caller gives a call up. False if it does not wait (any more).
  bool remove(Ticket ticket);
  /// Takes out the calls whose deadline has passed.
  std::vector<Ticket> take_expired(Clock::TimePoint now);
  /// Takes out the calls of a batch that goes now, in the order of arrival; it runs until
  /// batch_ended(). Empty: none goes. Ask until it is: several may.
  std::vector<Ticket> take_batch(Clock::TimePoint now);
  void batch_ended();
  /// See BatcherOptions::expected.
  void set_expected(std::size_t callers) { options_.expected = callers; }
  /// Takes out all: the end.
  std::vector<Ticket> take_all();

  /// When time alone makes a call leave; none: never.
  std::optional<Clock::TimePoint> look_again() const;
  BatcherStats stats() const;

 private:
  struct Waiting {
    /// When it has waited for company long enough.
    Clock::TimePoint goes_at;
    Clock::TimePoint deadline;
  };

  bool may_begin() const { return !waiting_.empty() && running_ < options_.max_concurrent; }
  bool is_complete() const;
  void erase(Ticket ticket, Clock::TimePoint deadline);

  BatcherOptions options_;
  std::uint64_t last_ticket_ = 0;
  std::size_t running_ = 0;
  absl::btree_map<Ticket, Waiting> waiting_;
  // Those of them that have a deadline.
  absl::btree_set<std::pair<Clock::TimePoint, Ticket>> deadlines_;
  BatcherStats totals_;
};

}  // namespace sinew::internal
