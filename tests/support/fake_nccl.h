#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sinew/rpc/planes/nccl/nccl_api.h"

namespace sinew::testing {

/// GPUs, CUDA streams and NCCL for several workers of one process, with host memory for the
/// devices' memory. It does what the real ones do as far as the plane can tell: streams work in
/// order, communicators of two ranks move bytes once both ends have launched, what does not match
/// hangs, an abort waits for all that its device has to do, a communicator is not ready while a
/// kernel runs on its device. Before 2.27 a thread can do one thing at a time. And it
/// takes note of every call that breaks a rule of theirs. Thread-safe.
class FakeGpus {
 public:
  enum class Call { kGetUniqueId, kInitRank, kSend, kRecv, kGroupEnd, kAbort, kCreateStream };
  enum class Fault {
    /// Returns an error.
    kFail,
    /// Does not return until release(). kAbort: until then the kernels stay, and write once more.
    kHang,
    /// Returns, but what it has begun never ends. kInitRank: the communicator; kGroupEnd: the
    /// launch; kSend and kRecv: the kernel.
    kNeverEnds,
  };
  static constexpr int kVersion = 22809;
  struct Live {
    int communicators = 0;
    int streams = 0;
    int events = 0;
  };

  /// `kernels_at_once`: of each device; further ones wait, in no particular order.
  FakeGpus(int devices_per_worker, int kernels_at_once);
  /// Lets hanging calls return and waits for them.
  ~FakeGpus();
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;

  /// What worker `name` sees. Valid for as long as this.
  std::shared_ptr<internal::NcclApi> nccl(const std::string& name, int version = kVersion);
  std::shared_ptr<internal::DeviceApi> device(const std::string& name);

  /// The `nth` such call of worker `name` from now on does not go well.
  void inject(const std::string& name, Call call, Fault fault, int nth = 1);
  /// Hanging calls return from here on.
  void release();
  /// Kernels that are launched later, or have not moved their bytes, wait until let_kernels_go().
  void hold_kernels();
  void let_kernels_go();
  /// From here on a graph is captured in CUDA's strictest mode.
  void begin_capture();
  /// The worker's communicators do nothing more, and nobody is told.
  void kill(const std::string& name);
  /// The worker's communicators report an error from here on.
  void fail_communicators(const std::string& name);
  /// Work that is queued on `stream` later waits until let_go().
  void hold(internal::DeviceApi::Stream stream);
  void let_go(internal::DeviceApi::Stream stream);

  /// Calls that broke a rule; empty is good.
  std::vector<std::string> violations() const;
  Live live() const;
  /// How many kernels of a device were queued or running at once, at most.
  int most_kernels() const;
  /// Kernels of the worker that are queued or running and have an event behind them: who launched
  /// them can tell when they leave.
  int watched_kernels(const std::string& name) const;
  /// Calls of all workers so far, those that failed included.
  int calls(Call call) const;
  /// What the last init_rank was given.
  int max_ctas() const;
  /// Calls that hang now.
  int hanging() const;

 private:
  class Nccl;
  class Device;
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace sinew::testing
