#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// Passes on one line per second, with the number of those that it stands for, so that a peer that
/// causes lines cannot fill a disk with them. Thread-safe.
class RateLimitedLog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kInterval{1};

  explicit RateLimitedLog(
      std::function<void(const std::string&)> write,
      std::function<Time()> now = [] { return std::chrono::steady_clock::now(); })
      : write_(std::move(write)), now_(std::move(now)) {}

  void add(const std::string& text) {
    std::uint64_t left_out = 0;
    {
      MutexLock lock(mutex_);
      const Time now = now_();
      if (any_ && now < last_ + kInterval) {
        ++left_out_;
        return;
      }
      any_ = true;
      last_ = now;
      left_out = std::exchange(left_out_, 0);
    }
    write_(left_out == 0 ? text
                         : absl::StrCat(text, " (", left_out, " more since the last such line)"));
  }

 private:
  const std::function<void(const std::string&)> write_;
  const std::function<Time()> now_;
  Mutex mutex_;
  bool any_ ABSL_GUARDED_BY(mutex_) = false;
  Time last_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sinew::internal
