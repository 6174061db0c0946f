#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace sinew::internal {

/// Things that are used by one at a time, and who waits for each, in order. Pure; not thread-safe.
class TurnTable {
 public:
  /// Which thing. Nothing is kept of one that is not in use.
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  /// One use of one thing. Never 0, never used again.
  using Place = std::uint64_t;

  /// A place behind all that there are. The turn is not taken before wait().
  Place take(const Key& key);
  /// True: it is the turn of this place, until leave(). False: leave() of another one will say when
  /// it is.
  bool wait(Place place);
  /// Gives the place up, whether or not it is its turn. Returns the place whose turn it is now, if
  /// that one waits.
  std::optional<Place> leave(Place place);

  /// Whose turn it is, or would be as soon as it waits. Empty: the thing is not in use.
  std::optional<Place> first(const Key& key) const;
  /// How many places are before this one.
  std::size_t ahead_of(Place place) const;
  bool empty() const { return keys_.empty(); }

 private:
  struct Entry {
    Place place = 0;
    bool waits = false;
  };
  using Line = std::deque<Entry>;

  Line& line_of(Place place);

  Place last_ = 0;
  absl::flat_hash_map<Key, Line> lines_;
  absl::flat_hash_map<Place, Key> keys_;
};

}  // namespace sinew::internal
