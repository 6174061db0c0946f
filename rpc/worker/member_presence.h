#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/member_event.h"

namespace sinew::internal {

/// Which worker is there under a name, and what became of earlier ones: what MemberEvents tell, by
/// name. Without a clock or a lock.
class MemberPresence {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// In the order of the events. Those of this worker itself have no effect.
  void on_event(const MemberEvent& event, TimePoint now);

  /// The member of that name, unless it is the incarnation `other_than`.
  std::optional<WorkerInfo> find(std::string_view name, Incarnation other_than) const;
  /// Why find() finds no worker, as a text: that no worker of that name was ever seen, with the
  /// nearest names that are there, or what became of the last one, and when.
  std::string absence(const std::string& name, TimePoint now) const;

  /// Names of whom it remembers no more than this how they went: the latest.
  static constexpr std::size_t kMostGone = 1024;

 private:
  struct Departure {
    MemberEvent how;
    TimePoint when;
  };
  void note_gone(const MemberEvent& event, TimePoint now);

  std::map<std::string, WorkerInfo, std::less<>> present_;
  std::map<std::string, Departure, std::less<>> gone_;
  // The names in gone_, the earliest first.
  std::deque<std::string> gone_order_;
};

}  // namespace sinew::internal
