#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"

namespace sinew::internal {

/// The reading end of one stream, without items, time or messages: when it pulls, in which order
/// items that came in any order are handed out, and how it ends. What the writing end's worker says
/// is not believed before it is checked. Not thread-safe; copyable.
class StreamReceiver {
 public:
  struct Limits {
    /// One pull asks for so many items.
    std::uint64_t items = 1024;
    /// The number of answers that are pulled, or have arrived and have not been read to their end.
    /// It bounds the reader's memory. Few, so that small items go together.
    std::size_t answers = 2;
    /// The same while answers are large: what one takes on its way is not felt then.
    std::size_t large_answers = 8;
  };

  struct Outputs {
    /// So many are to be sent.
    std::size_t pulls = 0;
    /// So many of those who wait for an item get the next one each, in their order.
    std::uint64_t served = 0;
    /// All others who wait are told that it is over, and how.
    bool ends_readers = false;
    /// Tell the writing end that the stream is not read any more; what was pulled is of no use.
    bool stops_writer = false;
  };

  explicit StreamReceiver(Limits limits) : limits_(limits) {}

  /// Once, first.
  Outputs begin();

  // --- The reader.

  /// The caller wants the next item, and waits for it unless it is among those that are served.
  Outputs want();
  /// It wants no more. The first reason counts. Nothing if it is over.
  Outputs stop(absl::Status why);

  // --- The writer's answers.

  /// A pull was answered with these items, and then, if set, the end.
  enum class Size { kSmall, kLarge };
  Outputs on_answer(std::uint64_t first, std::uint64_t items, Size size,
                    std::optional<absl::Status> end);
  Outputs on_pull_failed(absl::Status why);
  /// Whether on_answer() will hand these items out: asked before, by who keeps them.
  bool can_take(std::uint64_t first, std::uint64_t items, bool ends) const {
    return !is_over() && items > 0 && check(first, items, ends).ok();
  }

  /// Nothing comes any more, and all that came has been handed out. Then end() says why: OK at the
  /// writer's end.
  bool is_over() const { return over_.has_value(); }
  const absl::Status& end() const { return *over_; }
  /// Whose word that is: the writing end's, that of a pull which failed, or stop()'s; or the
  /// answers cannot be right.
  enum class Cause { kWriter, kPull, kReader, kBroken };
  Cause cause() const { return cause_; }
  /// The number of the item that is handed out next.
  std::uint64_t next() const { return next_; }
  /// Answers that the reader has: those behind one that is missing too.
  std::size_t held() const { return answers_.size(); }
  std::size_t waiting() const { return waiting_; }
  /// want() is served at once.
  bool has_next() const;

 private:
  /// Empty if it can be as it says.
  absl::Status check(std::uint64_t first, std::uint64_t items, bool ends) const;
  void hand_out(Outputs& outputs);
  void settle(Outputs& outputs);
  void end(Cause cause, absl::Status how, Outputs& outputs);

  Limits limits_;
  // Of the latest answer.
  Size size_ = Size::kSmall;
  // First items, and those behind the last ones.
  std::map<std::uint64_t, std::uint64_t> answers_;
  std::uint64_t next_ = 0;
  std::size_t pulls_ = 0;
  std::size_t waiting_ = 0;
  // The writer's: behind which item, and how.
  std::optional<std::uint64_t> end_number_;
  absl::Status end_status_;
  // Of a pull; the first that says why.
  absl::Status failure_;
  std::optional<absl::Status> over_;
  Cause cause_ = Cause::kWriter;
};

}  // namespace sinew::internal
