#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// Names one gather of one set of workers, the same at all of them.
struct GatherKey {
  /// Sorted, joined by ','.
  std::string names;
  std::uint64_t sequence = 0;

  /// Tells incarnations of the members apart; 0: losses are tolerated, and they do not matter.
  std::uint32_t epoch() const { return static_cast<std::uint32_t>(sequence >> 32); }
  std::uint32_t number() const { return static_cast<std::uint32_t>(sequence); }
  friend bool operator<(const GatherKey& a, const GatherKey& b) {
    return std::tie(a.names, a.sequence) < std::tie(b.names, b.sequence);
  }
};

/// What a worker remembers of its gathers: how many there were of each set and epoch, and how the
/// latest ones ended, for those who ask again or late. Not thread-safe.
class GatherHistories {
 public:
  using Outcome = absl::StatusOr<std::vector<std::string>>;

  /// Ends that are remembered of a set and epoch.
  static constexpr std::size_t kEnds = 16;
  /// Sets and epochs of which any are, those in which one ended last.
  static constexpr std::size_t kSets = 64;
  /// Of all of them, with their values: what is larger by itself is not remembered.
  static constexpr std::size_t kBytes = std::size_t{4} << 20;

  /// The key of this worker's next gather. `members`: who the names are, in an epoch other than 0.
  GatherKey begin(std::string names, std::uint32_t epoch, const std::vector<WorkerInfo>& members);
  /// This worker has begun it, and it may have ended.
  bool has_begun(const GatherKey& key) const;
  /// From now on find() knows it, for a while.
  void add_end(const GatherKey& key, const Outcome& outcome);
  const Outcome* find(const GatherKey& key) const;
  /// No epoch with this incarnation comes again. Not before the last gather in it has ended.
  void on_lost(Incarnation incarnation);

  /// Of how many sets and epochs anything is known.
  std::size_t size() const { return histories_.size(); }

 private:
  using Set = std::pair<std::string, std::uint32_t>;
  struct History {
    std::uint32_t next = 0;
    std::vector<Incarnation> members;
    /// One of the members was lost.
    bool is_past = false;
    std::deque<std::pair<std::uint32_t, Outcome>> ends;
  };

  static Set set_of(const GatherKey& key) { return {key.names, key.epoch()}; }
  const History* history_of(const GatherKey& key) const;
  void drop_end(History& history);
  void drop_oldest_set();

  std::map<Set, History> histories_;
  /// Those with ends, in the order of their last ones.
  std::deque<Set> lately_;
  std::size_t bytes_ = 0;
};

}  // namespace sinew::internal
