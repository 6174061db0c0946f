#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/nccl/nccl_plane.h"
#include "sinew/tests/support/fake_nccl.h"

namespace sinew::testing {

/// How a plane's transfer ended. A second end fails the test.
class Outcome {
 public:
  void set(absl::Status status);
  bool is_set() const;
  /// The end, once it is there: waits for it up to a minute.
  absl::Status wait() const;

 private:
  mutable internal::Mutex mutex_;
  std::optional<absl::Status> status_;
};

/// One transfer as the road above would make it, with memory at both ends.
struct TestTransfer {
  std::vector<std::vector<std::uint8_t>> from;
  std::vector<std::vector<std::uint8_t>> to;
  /// Of the buffers that are offered and accepted.
  std::shared_ptr<int> sender_owner = std::make_shared<int>();
  std::shared_ptr<int> receiver_owner = std::make_shared<int>();
  std::uint64_t ticket = 0;
  std::shared_ptr<Outcome> sent = std::make_shared<Outcome>();
  std::shared_ptr<Outcome> received = std::make_shared<Outcome>();

  bool is_over() const { return sent->is_set() && received->is_set(); }
  bool is_moved() const { return from == to; }
};

struct NetworkOptions {
  int workers = 2;
  int devices = 1;
  int kernels_at_once = 4;
  std::uint32_t seed = 1;
  /// For all planes; self, nccl, device and send are set by the network.
  internal::NcclPlaneOptions plane;
  /// NCCL's version at all workers but the last one, and there.
  int version = FakeGpus::kVersion;
  int last_version = FakeGpus::kVersion;
};

void expect_moved(const TestTransfer& transfer);

/// Planes of several workers of one process, over fake GPUs and a channel that does what it is
/// told. Worker i is called "wi" and has rank i.
class PlaneNetwork {
 public:
  explicit PlaneNetwork(NetworkOptions options);
  /// Stops the planes; fails the test if they leave anything behind or have broken a rule of NCCL.
  ~PlaneNetwork();

  FakeGpus& gpus() { return *gpus_; }
  internal::NcclPlane& plane(int worker) { return *planes_.at(worker); }
  const WorkerInfo& info(int worker) const { return infos_.at(worker); }
  void* stream(int worker, int device = 0) const { return streams_.at({worker, device}); }
  std::vector<std::string> logs() const;
  /// The most notes of one worker to another that were on their way at once.
  int most_on_the_way() const;

  /// Memory for a transfer of these sizes, filled at the sender.
  std::shared_ptr<TestTransfer> make(const std::vector<std::size_t>& sizes);
  void offer(int from, int to, const std::shared_ptr<TestTransfer>& transfer, int from_device = 0,
             int to_device = 0);
  void accept(int from, int to, const std::shared_ptr<TestTransfer>& transfer, int to_device = 0);
  /// Both, of 1000 bytes and one.
  std::shared_ptr<TestTransfer> begin(int from, int to);
  /// The same, of these sizes; and waits for both ends.
  std::shared_ptr<TestTransfer> run(int from, int to, const std::vector<std::size_t>& sizes);

  /// Nothing is delivered until flow().
  void hold();
  void flow();
  /// Nothing comes from or to this worker any more.
  void cut(int worker);
  /// Waits until nothing is on its way.
  void drain();
  void drain_if(bool wanted) {
    if (wanted) drain();
  }

  /// What hangs is expected to remain: not checked at the end.
  void expect_leftovers() { leftovers_ = true; }

 private:
  struct Message {
    int from = 0;
    int to = 0;
    std::string bytes;
    std::function<void()> on_end;
  };

  void send(int from, const WorkerInfo& to, std::string bytes, std::function<void()> on_end);
  void deliver();
  std::optional<Message> take_locked();

  const NetworkOptions options_;
  std::unique_ptr<FakeGpus> gpus_;
  std::vector<WorkerInfo> infos_;
  std::map<std::pair<int, int>, void*> streams_;
  std::vector<std::unique_ptr<internal::NcclPlane>> planes_;
  bool leftovers_ = false;

  mutable internal::Mutex mutex_;
  internal::CondVar changed_;
  std::mt19937 random_;
  std::deque<Message> messages_;
  // From one worker to another: notes that have not ended, and the most there were.
  std::map<std::pair<int, int>, int> on_the_way_;
  int most_on_the_way_ = 0;
  std::vector<std::string> logs_;
  std::set<int> cut_;
  bool held_ = false;
  bool delivering_ = false;
  bool closed_ = false;
  std::thread courier_;
};

}  // namespace sinew::testing
