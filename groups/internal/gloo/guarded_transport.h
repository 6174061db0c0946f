#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gloo/transport/device.h"

namespace sinew::internal {

/// What stands between Gloo's algorithms and its transport.
///
/// *Abort.* Gloo's waits end with their data or their time limit. All waits of its algorithms go
/// through UnboundBuffer, so a buffer of one's own can end them at any time.
///
/// *Ranks that do not agree.* Messages find their buffers by a slot of 64 bits, of which Gloo
/// leaves 16 free. Those get a digest of what the operation is (LibTorch's tag of it
/// leads there) and of the message's size, so that messages of different operations or sizes never
/// meet, where Gloo would end the process or write nonsense: they wait, until the group finds out.
///
/// *Who.* Which ranks the waits are for, and whose connections have broken.
class TransportGuard {
 public:
  virtual ~TransportGuard() = default;

  /// All waits, and all that is sent or received from now on, throw gloo::IoException with that.
  virtual void abort(const std::string& reason) = 0;
  /// Operation `tag` (of LibTorch's count) is that: ranks that agree have equal digests.
  virtual void expect(std::uint32_t tag, std::uint16_t digest) = 0;
  /// The same of the point-to-point operations that this thread starts, which have no such tag.
  virtual void expect_point_to_point(std::uint16_t digest) = 0;
  /// The ranks whose connections have broken, or could not be made, in the order in which this
  /// process has noticed.
  virtual std::vector<int> broken_ranks() const = 0;
  /// `f` runs whenever one breaks, on Gloo's thread.
  virtual void watch_broken(std::function<void()> f) = 0;
  /// Those that waits are for at present, sorted.
  virtual std::vector<int> awaited_ranks() const = 0;
};

/// A device whose (one) context is guarded.
struct GuardedDevice {
  std::shared_ptr<gloo::transport::Device> device;
  std::shared_ptr<TransportGuard> guard;
};
GuardedDevice guard_device(std::shared_ptr<gloo::transport::Device> device, int size);

}  // namespace sinew::internal
