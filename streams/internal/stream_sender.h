#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sinew::internal {

/// The writing end of one stream, without items, time or messages: which pull is answered with
/// which items, who waits for room, and when it is over. Items have numbers from 0 on. Not
/// thread-safe; copyable.
class StreamSender {
 public:
  using PullId = std::uint64_t;

  /// From either of them on, who writes waits. One item always finds room.
  struct Limits {
    std::uint64_t items = 1024;
    std::uint64_t bytes = std::uint64_t{4} << 20;
  };
  /// Pulls that may wait here: a reader has fewer.
  static constexpr std::size_t kMostPulls = 16;
  /// Of one answer, whatever a pull asks for, unless a single item has more.
  static constexpr std::uint64_t kMostAnswerBytes = std::uint64_t{16} << 20;

  /// A pull gets the items from `first` on, which leave the buffer, and then, if `is_last`, the
  /// end.
  struct Answer {
    PullId pull = 0;
    std::uint64_t first = 0;
    std::uint64_t items = 0;
    bool is_last = false;
  };
  struct Outputs {
    /// In their order: items are taken from the front of the buffer.
    absl::InlinedVector<Answer, 1> answers;
    /// All who wait for room go on.
    bool releases_writers = false;
  };

  explicit StreamSender(Limits limits) : limits_(limits) {}

  // --- The writer.

  /// Why nothing can be written any more.
  absl::Status closed() const;
  /// The next item, which the buffer holds now. closed() is OK.
  Outputs write(std::uint64_t bytes);
  /// After that, who has written waits.
  bool is_full() const;
  /// What is in the buffer, and then the end: OK or an error. closed() is OK.
  Outputs finish(absl::Status end);

  // --- The reader.

  /// kInvalidArgument, kResourceExhausted: it makes no sense, or there are too many. That changes
  /// nothing.
  absl::StatusOr<Outputs> pull(PullId pull, std::uint64_t most_items, std::uint64_t most_bytes);
  /// The reader has stopped, or is lost, or the time is over: what is in the buffer goes nowhere.
  /// The first reason counts. Nothing if it is over.
  Outputs stop(absl::Status why);

  /// Once a pull has been told the end: OK or an error.
  const absl::Status& end() const { return end_.has_value() ? *end_ : stopped_; }
  /// Nothing that either end does has an effect any more.
  bool is_over() const { return !stopped_.ok() || told_; }
  /// Whether any pull has arrived.
  bool was_pulled() const { return was_pulled_; }
  std::uint64_t buffered() const { return sizes_.size(); }
  std::size_t waiting_pulls() const { return pulls_.size(); }

 private:
  struct Pull {
    PullId id = 0;
    std::uint64_t most_items = 0;
    std::uint64_t most_bytes = 0;
  };

  void answer(Outputs& outputs);
  Answer take(const Pull& pull);

  Limits limits_;
  // Of the items in the buffer, the number of the first of which is this.
  std::deque<std::uint64_t> sizes_;
  std::uint64_t first_ = 0;
  std::uint64_t bytes_ = 0;
  std::deque<Pull> pulls_;
  bool was_pulled_ = false;
  // What the writer ends with.
  std::optional<absl::Status> end_;
  bool told_ = false;
  absl::Status stopped_;
};

}  // namespace sinew::internal
