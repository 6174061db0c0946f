#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "sinew/rpc/base/future.h"

namespace sinew::testing {

/// Futures that a test completes, and how many wait for one.
class Signal {
 public:
  Future<int> get() {
    const std::lock_guard<std::mutex> lock(mutex_);
    promises_.emplace_back(nullptr);
    return promises_.back().future();
  }
  std::size_t size() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return promises_.size();
  }
  std::vector<Promise<int>> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(promises_, {});
  }
  void send(int value) {
    for (const auto& promise : take()) promise.set_value(value);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Promise<int>> promises_;
};

}  // namespace sinew::testing
