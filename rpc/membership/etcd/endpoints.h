#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "sinew/rpc/membership/etcd/etcd_options.h"

namespace sinew::internal::etcd {

/// Which server is asked, and when the next one. Pure.
class Endpoints {
 public:
  /// `first`: clients begin at different servers.
  explicit Endpoints(const EtcdOptions& options, std::size_t first)
      : endpoints_(options.endpoints),
        first_pause_(options.first_pause),
        longest_pause_(options.longest_pause),
        current_(first % options.endpoints.size()) {}

  const std::string& current() const { return endpoints_[current_]; }

  void answered() {
    failures_ = 0;
    pause_ = Time(0);
  }

  /// The current one has failed. Returns how long to wait before its successor is asked: only when
  /// all have failed since the last answer.
  Time failed() {
    current_ = (current_ + 1) % endpoints_.size();
    if (++failures_ % endpoints_.size() != 0) return Time(0);
    pause_ = pause_ == Time(0) ? first_pause_ : std::min(2 * pause_, longest_pause_);
    return pause_;
  }

 private:
  const std::vector<std::string> endpoints_;
  const Time first_pause_;
  const Time longest_pause_;
  std::size_t current_;
  std::size_t failures_ = 0;
  Time pause_{0};
};

}  // namespace sinew::internal::etcd
