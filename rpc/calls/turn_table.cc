#include "sinew/rpc/calls/turn_table.h"

#include <algorithm>

namespace sinew::internal {

TurnTable::Place TurnTable::take(const Key& key) {
  const Place place = ++last_;
  lines_[key].push_back({place, false});
  keys_.emplace(place, key);
  return place;
}

bool TurnTable::wait(Place place) {
  Line& line = line_of(place);
  if (line.front().place == place) return true;
  const auto is_it = [place](const Entry& entry) { return entry.place == place; };
  std::find_if(line.begin(), line.end(), is_it)->waits = true;
  return false;
}

std::optional<TurnTable::Place> TurnTable::leave(Place place) {
  const auto key = keys_.find(place);
  const auto found = lines_.find(key->second);
  keys_.erase(key);
  Line& line = found->second;
  const bool was_first = line.front().place == place;
  const auto is_it = [place](const Entry& entry) { return entry.place == place; };
  line.erase(std::find_if(line.begin(), line.end(), is_it));
  if (line.empty()) {
    lines_.erase(found);
    return std::nullopt;
  }
  if (!was_first || !line.front().waits) return std::nullopt;
  return line.front().place;
}

std::optional<TurnTable::Place> TurnTable::first(const Key& key) const {
  const auto found = lines_.find(key);
  if (found == lines_.end()) return std::nullopt;
  return found->second.front().place;
}

std::size_t TurnTable::ahead_of(Place place) const {
  const Line& line = lines_.find(keys_.find(place)->second)->second;
  const auto is_it = [place](const Entry& entry) { return entry.place == place; };
  return static_cast<std::size_t>(std::find_if(line.begin(), line.end(), is_it) - line.begin());
}

TurnTable::Line& TurnTable::line_of(Place place) {
  return lines_.find(keys_.find(place)->second)->second;
}

}  // namespace sinew::internal
