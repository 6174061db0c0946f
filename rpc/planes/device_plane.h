#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// Memory of a device that a plane reads or writes, from `data` on, and the stream after whose
/// present work it may do so.
struct DeviceBuffer {
  void* data = nullptr;
  std::size_t size_bytes = 0;
  int device = 0;
  /// The library's own handle: cudaStream_t for CUDA.
  void* stream = nullptr;
  /// Keeps the memory, if set. The plane drops it after on_end, or never, if it had to give up a
  /// device that may still touch the memory.
  std::shared_ptr<const void> owner = nullptr;
};

/// Moves the tensors of messages from devices of this worker straight to devices of others, while
/// the messages themselves go by gRPC. A plane may fail at any time: the sender of an offer keeps
/// the bytes until the end is reported, and has another way to send them. Thread-safe.
class DevicePlane {
 public:
  /// Runs once, on a thread of the plane; it must not block and must not run user code. OK: all
  /// buffers have been read and are with the receiver, or are written and may be used on any
  /// stream. Otherwise their contents are undefined. kDataLoss, for buffers to be written only: the
  /// device may still write them, at any time, so they must not be used for anything else. After
  /// other errors nothing writes them any more; a device that hangs may read them yet, see
  /// DeviceBuffer::owner.
  using OnEnd = absl::AnyInvocable<void(absl::Status) &&>;

  virtual ~DevicePlane() = default;

  /// Whether offers to `peer` have a chance now: both ends have the plane, and it did not fail a
  /// moment ago.
  virtual bool is_usable(const WorkerInfo& peer) const = 0;

  /// Announces `buffers`, all of one device, to `peer`'s device `to_device`. The returned ticket,
  /// never 0, goes with the message. The buffers stay alive and unchanged until `on_end`. An offer
  /// that is not accepted ends with the peer, with withdraw(), or at the plane's deadline.
  virtual std::uint64_t offer(const WorkerInfo& peer, int to_device,
                              std::vector<DeviceBuffer> buffers, OnEnd on_end) = 0;
  /// The message of `ticket` will not be sent, or is not waited for any more: ends the offer with
  /// kCancelled unless the transfer has begun.
  virtual void withdraw(const WorkerInfo& peer, std::uint64_t ticket) = 0;

  /// Accepts what `peer` has offered with `ticket`. Sizes must be those of the offer.
  virtual void accept(const WorkerInfo& peer, std::uint64_t ticket,
                      std::vector<DeviceBuffer> buffers, OnEnd on_end) = 0;
  /// The receiver will not accept `ticket`: it wants the bytes by another road, or not at all.
  virtual void decline(const WorkerInfo& peer, std::uint64_t ticket) = 0;

  /// A message of the plane at `peer`, each once and in the order of sending. Hostile until
  /// checked.
  virtual void on_message(const WorkerInfo& peer, const std::string& message) = 0;
  /// `peer` is out of use permanently.
  virtual void on_peer_lost(const WorkerInfo& peer) = 0;

  /// Adds what it has carried and what went wrong, by names of its own; for Worker::counters().
  virtual void add_counters(std::map<std::string, std::int64_t>& counters) const = 0;

  /// Ends all transfers with kCancelled; returns when no callback runs or will run. Must not be
  /// called from one. Idempotent.
  virtual void stop() = 0;
};

}  // namespace sinew::internal
