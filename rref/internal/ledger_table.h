#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "sinew/rref/internal/ledger_messages.h"

namespace sinew::internal::ledger {

/// A map that counts what is walked. A worker may hold 1e5 references and let go of them one by
/// one, so what happens once for each must not walk over all; tests see to that. Walking starts at
/// begin(), which counts every entry. A value type; not thread-safe.
template <class Key, class Value>
class Table {
 public:
  using Map = absl::btree_map<Key, Value>;
  using iterator = typename Map::iterator;
  using const_iterator = typename Map::const_iterator;

  iterator begin() {
    walked_ += map_.size();
    return map_.begin();
  }
  const_iterator begin() const {
    walked_ += map_.size();
    return map_.begin();
  }
  iterator end() { return map_.end(); }
  const_iterator end() const { return map_.end(); }
  iterator lower_bound(const Key& key) { return map_.lower_bound(key); }

  iterator find(const Key& key) { return map_.find(key); }
  const_iterator find(const Key& key) const { return map_.find(key); }
  bool contains(const Key& key) const { return map_.contains(key); }
  Value& operator[](const Key& key) { return map_[key]; }
  Value& at(const Key& key) { return map_.at(key); }
  const Value& at(const Key& key) const { return map_.at(key); }
  std::pair<iterator, bool> emplace(const Key& key, Value value) {
    return map_.emplace(key, std::move(value));
  }
  iterator erase(iterator entry) { return map_.erase(entry); }
  std::size_t size() const { return map_.size(); }

  /// Entries that all walks together may have passed.
  std::size_t walked() const { return walked_; }

 private:
  Map map_;
  mutable std::size_t walked_ = 0;
};

/// When things are due, each by its key. A value type; not thread-safe.
template <class Key>
class Schedule {
 public:
  /// Also moves what is there.
  void set(const Key& key, Time at) {
    erase(key);
    by_key_.emplace(key, at);
    by_time_.emplace(at, key);
  }
  void erase(const Key& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return;
    by_time_.erase({found->second, key});
    by_key_.erase(found);
  }
  /// When the first thing is due.
  std::optional<Time> next() const {
    if (by_time_.empty()) return std::nullopt;
    return by_time_.begin()->first;
  }
  /// What is due at `now`, the first thing first; it is no longer here then.
  std::vector<Key> take_due(Time now) {
    std::vector<Key> due;
    while (!by_time_.empty() && by_time_.begin()->first <= now) {
      due.push_back(by_time_.begin()->second);
      by_key_.erase(due.back());
      by_time_.erase(by_time_.begin());
    }
    return due;
  }
  const absl::btree_map<Key, Time>& by_key() const { return by_key_; }

 private:
  absl::btree_map<Key, Time> by_key_;
  absl::btree_set<std::pair<Time, Key>> by_time_;
};

}  // namespace sinew::internal::ledger
