#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// Connections for which there is no room, and which are open for as long as it takes to tell the
/// other end why, by their endpoints (see origin.h). Thread-safe.
class TurnedAway {
 public:
  void add(const std::string& endpoint, std::string why) {
    MutexLock lock(mutex_);
    connections_.emplace_back(endpoint, std::move(why));
    // So many are not open at once (OpenSockets).
    if (connections_.size() > kMost) connections_.pop_front();
    size_.store(connections_.size(), std::memory_order_release);
  }
  /// The endpoint is another connection's now.
  void remove(const std::string& endpoint) {
    if (none()) return;
    MutexLock lock(mutex_);
    const auto gone =
        std::remove_if(connections_.begin(), connections_.end(),
                       [&endpoint](const auto& each) { return each.first == endpoint; });
    connections_.erase(gone, connections_.end());
    size_.store(connections_.size(), std::memory_order_release);
  }
  /// Costs next to nothing.
  bool none() const { return size_.load(std::memory_order_acquire) == 0; }
  /// Empty if there is room for it.
  std::string why(const std::string& endpoint) const {
    MutexLock lock(mutex_);
    for (const auto& [turned_away, why] : connections_) {
      if (turned_away == endpoint) return why;
    }
    return "";
  }

 private:
  static constexpr std::size_t kMost = 64;

  std::atomic<std::size_t> size_{0};
  mutable Mutex mutex_;
  std::deque<std::pair<std::string, std::string>> connections_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
