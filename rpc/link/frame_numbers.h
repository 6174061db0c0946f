#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/inlined_vector.h"

namespace sinew::internal {

/// The frame numbers `first` to `last`, both included.
struct NumberRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;

  friend bool operator==(const NumberRange& a, const NumberRange& b) {
    return a.first == b.first && a.last == b.last;
  }
};

/// Mostly one: no memory of their own for that.
using NumberRanges = absl::InlinedVector<NumberRange, 2>;

/// The numbers of the frames of one lane that have arrived, and which of them the sender has not
/// been told of. Numbers start at 1. A value type, pure; not thread-safe.
class FrameNumbers {
 public:
  /// So many separate runs of frames may have arrived behind frames that have not: more than any
  /// sender that keeps the rules causes.
  static constexpr std::size_t kMaxRuns = 1024;

  /// Ranges that are reported at once, so that a header stays small whatever order frames come in.
  static constexpr std::size_t kMaxReported = 256;

  enum class Arrival {
    kNew,
    kRepeated,
    /// The sender breaks the rules: number 0, or too many runs. Nothing has changed.
    kRefused,
  };
  /// With Report::kLater the sender is told of a new number only after report().
  enum class Report { kNow, kLater };
  Arrival add(std::uint64_t number, Report report = Report::kNow);
  void report(std::uint64_t number);
  bool contains(std::uint64_t number) const;
  /// The lowest number that has not arrived.
  std::uint64_t first_missing() const;

  /// All that have arrived, ascending, at most kMaxRuns.
  NumberRanges all() const;
  /// What is to be reported since the last call; at most kMaxReported, the rest with the next call.
  NumberRanges take_unreported();
  bool has_unreported() const { return !unreported_.empty(); }
  /// The sender was told of all() that have arrived.
  void all_reported() { unreported_.clear(); }

 private:
  friend struct LinkInspector;  // tests only: a digest of the state
  // By their first number; no two touch.
  absl::btree_map<std::uint64_t, std::uint64_t> runs_;
  // In the order of arrival, neighbours merged.
  std::vector<NumberRange> unreported_;
};

}  // namespace sinew::internal
