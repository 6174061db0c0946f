#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/device/device_runtime.h"
#include "sinew/rpc/planes/device_plane.h"
#include "sinew/rpc/planes/make_device_plane.h"

namespace sinew::testing {

/// How many fake devices there are; LibTorch's own fake of their guards has eight.
constexpr int kFakeDevices = 3;

/// Devices for machines without any: LibTorch's PrivateUse1, in host memory, with kernels that do
/// their work on the CPU. A program that links this has them from its start, also for Sinew.
c10::Device fake_device(int index);
/// 0, 1, 2, ...: `size` floats, on a fake device.
at::Tensor numbers(std::int64_t size, int device);
/// Blocks of memory on fake devices that are in use.
int live_fake_blocks();
/// Tensors that Sinew copied to the host, and from it, so far.
struct FakeCopies {
  int to_host = 0;
  int to_device = 0;
};
FakeCopies fake_copies();
/// The number of the stream of the calling thread on a fake device; 0 at first.
void set_fake_stream(int device, int stream);
/// The stream of this number captures a graph.
constexpr int kCapturingStream = 99;
/// Streams on which copies to devices were made, in order, since the last call.
std::vector<c10::Stream> take_fake_copy_streams();

/// What joins the fake planes of one test. Copies when a transfer is accepted; does what a plane
/// may do wrong when it is told to. Thread-safe.
class FakePlanes {
 public:
  enum class Fault {
    kNone,
    /// Both ends fail when it is accepted.
    kFail,
    /// The sender is told that all went well, the receiver that it did not.
    kFailReceiver,
    /// Both ends fail, and the receiver's memory may still be written.
    kMayStillWrite,
    /// An accepted transfer never ends by itself.
    kHang,
  };
  struct Stats {
    int offered = 0;
    int copied = 0;
    int withdrawn = 0;
    int declined = 0;
    /// Offers and accepted transfers that have not ended.
    int open = 0;
    std::vector<std::size_t> tensors_of_offers;
  };

  /// For WorkerParts::device_plane.
  internal::MakeDevicePlane maker();
  void set_fault(Fault fault);
  /// Offers are refused from the start.
  void set_usable(bool usable);
  Stats stats() const;

 private:
  friend class FakePlane;
  struct Offer {
    sinew::Incarnation from;
    std::vector<internal::DeviceBuffer> buffers;
    internal::DevicePlane::OnEnd on_end;
  };
  struct State {
    mutable internal::Mutex mutex;
    Fault fault ABSL_GUARDED_BY(mutex) = Fault::kNone;
    bool usable ABSL_GUARDED_BY(mutex) = true;
    Stats stats ABSL_GUARDED_BY(mutex);
    std::uint64_t next ABSL_GUARDED_BY(mutex) = 1;
    std::map<std::uint64_t, Offer> offers ABSL_GUARDED_BY(mutex);
    // Of workers, by incarnation: messages that came to their planes.
    std::map<std::uint64_t, std::vector<std::string>> messages ABSL_GUARDED_BY(mutex);
    // Hanging: by the incarnation of the plane whose stop() ends it.
    std::vector<std::pair<sinew::Incarnation, internal::DevicePlane::OnEnd>> hanging
        ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace sinew::testing
