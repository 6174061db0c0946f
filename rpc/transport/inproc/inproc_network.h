#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/frame.h"

namespace sinew::internal {

class InprocCore;

/// How the callbacks of an in-process network get to run.
enum class InprocMode {
  /// Each transport has a delivery thread.
  kThreaded,
  /// Nothing moves until step() or run_until_idle(), whose caller runs the callbacks: same calls,
  /// same order.
  /// Connects do not time out by themselves.
  kStepped,
};

/// What can happen next at one transport of the network.
struct InprocEvent {
  enum class Kind { kConnect, kUp, kFrames, kDown, kUnaryCall, kUnaryCancel };
  Kind kind = Kind::kFrames;
  /// Where it happens.
  std::string at;
  /// The other end; empty for unary calls.
  std::string from;
  /// Numbers the connections of a network from 1 in the order of their opening; 0 for unary calls.
  std::uint64_t connection = 0;
  /// Whether it happens at the end that opened the connection.
  bool at_opener = false;
  /// Of kFrames.
  Lane lane = Lane::kControl;
};

/// The wires between the in-process transports that were made with it, and no others: there is no
/// global. Frames are moved from sender to receiver; payloads share memory with what was sent.
///
/// An event is one callback (of a connection that is accepted: two, on_connection and on_up).
/// Events of different connections, lanes and transports may happen in any order; the default is
/// the order in which they became possible. Events of one transport never overlap.
///
/// Thread-safe; in stepped mode, step() and run_until_idle() by one thread at a time.
class InprocNetwork {
 public:
  explicit InprocNetwork(InprocMode mode = InprocMode::kThreaded);
  ~InprocNetwork();
  InprocNetwork(const InprocNetwork&) = delete;
  InprocNetwork& operator=(const InprocNetwork&) = delete;

  InprocMode mode() const;

  /// Decides what happens next: gets the possible events, oldest first, and returns the position of
  /// one. Must not call the network. In threaded mode each delivery thread asks it about its own
  /// transport's events (never two at once). Set it before traffic starts.
  using Chooser = absl::AnyInvocable<std::size_t(const std::vector<InprocEvent>&)>;
  void set_chooser(Chooser chooser);

  /// At most this many frames go into one on_frames(). Default: all that are there.
  void set_max_frames_per_event(std::size_t frames);

  /// Stepped mode: what step() chooses from, oldest first.
  std::vector<InprocEvent> events() const;
  /// Stepped mode: makes one event happen. False when there is none.
  bool step();
  /// Stepped mode: steps until nothing can happen, but at most `max_steps` times. Returns the
  /// number of steps.
  std::size_t run_until_idle(std::size_t max_steps = 1'000'000);

  /// Takes down every connection between two addresses, whichever end opened it:
  /// on_down(kUnavailable) at both ends. Frames that are on their way may be lost. Returns how many
  /// there were.
  std::size_t break_connections(std::string_view one, std::string_view other);
  /// The same for the connection of that number.
  bool break_connection(std::uint64_t connection);

  /// Stops (resumes) every callback at an address, as if its process were stopped. It still takes
  /// in what others send. The callback that runs just now is not waited for.
  /// Shutting down thaws.
  void freeze(std::string_view address);
  void thaw(std::string_view address);

  /// A seat that one transport of the network has at a time.
  struct Seat {
    /// Its holder; empty: none.
    std::string address;
    /// It had a holder before.
    bool was_taken = false;
  };
  /// Takes the seat of that name if it is free; an empty `address` only looks. Returns how it is
  /// then, but `was_taken` as it was before.
  Seat take_seat(const std::string& name, const std::string& address);
  /// Of its holder.
  void leave_seat(const std::string& name, const std::string& address);

  /// For the transports of this folder.
  const std::shared_ptr<InprocCore>& core() const { return core_; }

 private:
  const std::shared_ptr<InprocCore> core_;
  Mutex mutex_;
  std::map<std::string, Seat> seats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
