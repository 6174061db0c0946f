#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/same_host/greeting.h"

namespace sinew::internal {

/// Where the processes at the two ends of connections meet, so that the kernel can say to each who
/// the other one is: the one who accepted a connection hosts a meeting, the one who dialled comes.
/// One thread sees to all of them, and lives only while there are any. Thread-safe.
class MeetingPlace {
 public:
  /// Runs once, on the thread of the meetings. kCancelled: cancel(), or this is gone; kNotFound:
  /// the other end has broken it off; kUnavailable: no process came in time, or not the right one.
  using OnMet = absl::AnyInvocable<void(absl::StatusOr<MetPeer>) &&>;
  /// 0 is none.
  using Ticket = std::uint64_t;

  static constexpr std::size_t kPlaceBytes = 16;
  static constexpr std::size_t kMaxMeetings = 128;
  /// Of those who come to one meeting and have not said yet that they belong there. One more sends
  /// the first of them away.
  static constexpr std::size_t kMaxVisitors = 8;

  explicit MeetingPlace(std::chrono::milliseconds timeout);
  /// Ends all meetings, and returns when no callback runs; within one it does not wait.
  ~MeetingPlace();
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  struct Hosted {
    Ticket ticket = 0;
    std::string place;
  };
  /// Waits for the visitor at a place that cannot be predicted. Does not block. kUnavailable when
  /// the system allows no socket or thread, or there are kMaxMeetings: `on_met` does not run then.
  absl::StatusOr<Hosted> host(MeetingTerms terms, OnMet on_met);
  /// Goes to where the other end hosts: kPlaceBytes. As host().
  absl::StatusOr<Ticket> visit(absl::string_view place, MeetingTerms terms, OnMet on_met);
  /// Ends the meeting soon, unless it has ended.
  void cancel(Ticket ticket);

 private:
  struct Meeting;
  class Loop;

  absl::StatusOr<Ticket> add(std::unique_ptr<Meeting> meeting);

  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<Loop> loop_;
  Mutex mutex_;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
