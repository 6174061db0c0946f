#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/calls/arrival_order.h"
#include "sinew/rpc/calls/turn_table.h"

namespace sinew::internal {

/// A TurnTable with its lock. Thread-safe. Held by shared_ptr: what has a turn may end after its
/// worker.
class ObjectTurns final : public std::enable_shared_from_this<ObjectTurns> {
 public:
  ObjectTurns();

  /// One place, given up when this goes. Thread-safe but for being moved and left.
  class Turn {
   public:
    Turn() = default;
    Turn(Turn&& other) noexcept = default;
    Turn& operator=(Turn&& other) noexcept;
    ~Turn() { leave(); }

    bool valid() const { return turns_ != nullptr; }
    /// True: it is its turn, and `then` is dropped. False: `then` runs once when it is, on the
    /// thread that leaves: it must not block.
    bool wait(Task then);
    void leave();
    /// How many are before this one.
    std::size_t ahead() const;
    /// Names this turn among all of all workers; cannot be guessed.
    std::uint64_t token() const { return turns_->token_of(place_); }

   private:
    friend class ObjectTurns;
    Turn(std::shared_ptr<ObjectTurns> turns, TurnTable::Place place);

    std::shared_ptr<ObjectTurns> turns_;
    TurnTable::Place place_ = 0;
  };

  Turn take(const TurnTable::Key& key);
  /// The token of the first place, if anybody has one.
  std::optional<std::uint64_t> first(const TurnTable::Key& key) const;

 private:
  std::uint64_t token_of(TurnTable::Place place) const { return secret_ + place; }
  void leave(TurnTable::Place place);
  Task take_waiting_locked(TurnTable::Place place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::uint64_t secret_;
  mutable Mutex mutex_;
  TurnTable table_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<TurnTable::Place, Task> waiting_ ABSL_GUARDED_BY(mutex_);
  // One thread takes them out: who is dropped gives its own place up, and so on.
  std::vector<TurnTable::Place> leaving_ ABSL_GUARDED_BY(mutex_);
  bool takes_out_ ABSL_GUARDED_BY(mutex_) = false;
};

/// An ArrivalOrder with its lock, for the calls that one peer has made. Thread-safe. Held by
/// shared_ptr.
class CallerOrder final : public std::enable_shared_from_this<CallerOrder> {
 public:
  /// A call that has arrived. Those behind it go on without it when this is destroyed.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept = default;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { pass(); }

    /// Runs `take` as soon as all calls before this one have done so, or need not: at once, and
    /// returns true; or later, under a lock, and then `then`, without it. Neither may block.
    bool enter(Task take, Task then);
    /// It takes no place.
    void pass();

   private:
    friend class CallerOrder;
    Ticket(std::shared_ptr<CallerOrder> order, std::uint64_t number);

    std::shared_ptr<CallerOrder> order_;
    std::uint64_t number_ = 0;
  };

  /// By the number of its frame, in the order in which frames are handed over.
  Ticket on_call(std::uint64_t number);
  /// A frame that is no call.
  void on_frame(std::uint64_t number);
  /// No more frames come. Who waits goes on, in order.
  void end();

 private:
  struct Entering {
    Task take;
    Task then;
  };
  std::vector<Task> take_locked(const ArrivalOrder::Numbers& numbers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void pass(std::uint64_t number);

  Mutex mutex_;
  ArrivalOrder order_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::btree_map<std::uint64_t, Entering> entering_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
