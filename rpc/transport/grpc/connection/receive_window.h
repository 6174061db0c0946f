#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "sinew/rpc/transport/frame.h"

namespace sinew::internal {

/// Counts received bytes that the reader has not given back yet, and tells when it is time to read
/// on. Thread-safe.
class ReceiveWindow : public std::enable_shared_from_this<ReceiveWindow> {
 public:
  /// `resume` runs on whatever thread gives credit back: it must only post work.
  ReceiveWindow(std::size_t limit_bytes, std::function<void()> resume)
      : limit_bytes_(limit_bytes), resume_(std::move(resume)) {}

  bool has_room() const { return out_bytes_.load() < limit_bytes_; }

  Credit take(std::size_t bytes) {
    out_bytes_.fetch_add(bytes);
    return Credit([self = shared_from_this(), bytes] { self->give_back(bytes); });
  }

  /// Asks for one `resume` once half of the window is free. False when it is already: read on.
  bool pause() {
    paused_.store(true);
    // Whoever gives back from now on sees the flag; what was given back before is seen here.
    return !(may_resume() && paused_.exchange(false));
  }

 private:
  bool may_resume() const { return out_bytes_.load() <= limit_bytes_ / 2; }
  void give_back(std::size_t bytes) {
    out_bytes_.fetch_sub(bytes);
    if (paused_.load() && may_resume() && paused_.exchange(false)) resume_();
  }

  const std::size_t limit_bytes_;
  const std::function<void()> resume_;
  std::atomic<std::size_t> out_bytes_{0};
  std::atomic<bool> paused_{false};
};

}  // namespace sinew::internal
