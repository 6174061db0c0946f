#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sinew/operator.pb.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/link/identity_codec.h"

namespace sinew::internal {

/// Where the parts of a worker write what it tells operators of itself: see operator.proto. Not
/// thread-safe.
class StateReport {
 public:
  static constexpr std::size_t kMostOfOne = 1000;

  /// `wanted`: names of lists.
  StateReport(std::vector<std::string> wanted, Clock::TimePoint now)
      : wanted_(std::move(wanted)), now_(now) {}

  bool wants(std::string_view list) const;
  proto::WorkerState& state() { return state_; }

  /// One more entry of `list`, whose name is `name`; null: there are enough, and it is counted.
  template <class List>
  typename List::value_type* add(List& list, const char* name) {
    if (static_cast<std::size_t>(list.size()) < kMostOfOne) return list.Add();
    leave_out(name, 1);
    return nullptr;
  }
  /// So many are not even made.
  void leave_out(const char* name, std::uint64_t count) {
    (*state_.mutable_left_out())[name] += count;
  }

  std::uint64_t age_us(Clock::TimePoint since) const;
  /// Writes into an optional field how much time is left; nothing where there is no limit.
  template <class Entry>
  void set_left(Entry& entry, Clock::TimePoint deadline) const {
    if (deadline != Clock::TimePoint::max()) entry.set_left_us(left_us(deadline));
  }

 private:
  std::uint64_t left_us(Clock::TimePoint deadline) const;

  const std::vector<std::string> wanted_;
  const Clock::TimePoint now_;
  proto::WorkerState state_;
};

}  // namespace sinew::internal
