#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/planes/pull_plane.h"

namespace sinew::internal {

/// The planes of one transport, and what they have done on all of its connections together.
struct Planes {
  /// The best first.
  std::vector<std::shared_ptr<PullPlane>> planes;
  /// A line for people.
  std::function<void(const std::string& text)> log = [](const std::string&) {};

  std::atomic<std::int64_t> fetched_bytes{0};
  std::atomic<std::int64_t> fetched_transfers{0};
  /// Those that came over gRPC in the end.
  std::atomic<std::int64_t> failed_transfers{0};
  /// Only the first peer on this host that cannot be reached is worth a line: the reason is likely
  /// to be the same for all.
  std::atomic<bool> said_unreachable{false};
};

/// The planes that one connection's ends share: finds out which ones work, and chooses among them.
/// Most connections never carry anything large, and finding out costs as much as a connection does:
/// so that waits for the first payload, or for begin(). Thread-safe.
class PlaneSet {
 public:
  /// `planes` outlives this, and what it calls back.
  explicit PlaneSet(Planes& planes) : planes_(planes) {}

  /// Gets serialised messages for the other end, or kInvalidArgument when what that one said makes
  /// no sense. On any thread, also within begin() and on_message().
  using OnAnswer = std::function<void(absl::StatusOr<std::vector<std::string>>)>;
  /// Once both ends have told each other their hellos, and before on_message(). `owner` is what
  /// this belongs to: `on_answer` is called for as long as it lives.
  void prepare(ConnectionEnds ends, std::weak_ptr<void> owner, OnAnswer on_answer);
  /// Finds out which planes there are. False: that has begun before, or begins with prepare().
  bool begin();
  /// Takes in a message of the other end, which has begun.
  void on_message(const std::string& message);

  struct Location {
    /// 0: no plane reaches it.
    std::uint32_t plane = 0;
    std::string text;
  };
  /// Where the other end can fetch `payload`, which is in one piece and stays until release() or
  /// close(). The first one begins.
  Location locate(const absl::Cord& payload);
  /// The other end is done with what was located there.
  void release(const Location& location);
  /// The other end could not fetch what this plane has located: it rests for a while.
  void on_failed(std::uint32_t plane);

  /// Fetches what the other end has located. As PullLink::fetch; fails for a plane that is not
  /// there or has no proof.
  void fetch(std::uint32_t plane, absl::string_view location, PullTarget target,
             PullLink::OnEnd on_end);
  bool fetches_in_place(std::uint32_t plane);

  /// Which planes there are, and how far they are, for people.
  std::vector<std::string> texts() const;

  /// See PullLink::process().
  std::shared_ptr<const ProcessHold> process() const;

  /// What was located may be freed after this. Idempotent.
  void close();

 private:
  struct Entry {
    PullPlane* plane = nullptr;
    std::shared_ptr<PullLink> link;
    bool was_verified = false;
    /// The other end has proved its memory, and we ours.
    bool may_fetch = false;
    bool may_locate = false;
    /// After failures: no locations before this; how long the last rest was.
    Clock::TimePoint rests_until{};
    std::chrono::nanoseconds rest{0};
    bool has_logged = false;
  };

  void open_planes();
  Entry* find_locked(std::uint32_t plane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void prove(PullLink& link, std::uint32_t plane, const std::string& challenge);
  void verify(PullLink& link, std::uint32_t plane, const std::string& proof);
  void on_verified(std::uint32_t plane, const absl::Status& status);
  void on_fetched(std::uint32_t plane, std::size_t size_bytes, const absl::Status& status);

  Planes& planes_;
  // Written by prepare().
  ConnectionEnds ends_;
  std::weak_ptr<void> owner_;
  OnAnswer on_answer_;
  // The second caller waits for the first: an end's challenges leave before its proofs.
  std::once_flag begun_;
  mutable Mutex mutex_;
  bool prepared_ ABSL_GUARDED_BY(mutex_) = false;
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
