#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/groups/internal/backend.h"
#include "sinew/groups/internal/gloo/guarded_transport.h"
#include "sinew/groups/internal/gloo/parts_exchange.h"
#include "sinew/groups/internal/reduction.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/rpc/base/error.h"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"

namespace sinew::internal {
namespace {

using c10d::ProcessGroupGloo;
using Tensors = std::vector<at::Tensor>;

/// Knows which tag the next operation gets, and has what LibTorch's lacks.
class CountedGloo final : public ProcessGroupGloo {
 public:
  CountedGloo(const BackendRequest& request, c10::intrusive_ptr<Options> options)
      : ProcessGroupGloo(request.store, request.rank, request.size, std::move(options)),
        piece_bytes_(request.piece_bytes) {}

  c10::intrusive_ptr<c10d::Work> alltoall(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllToAllOptions&) override {
    return queued(make_parts_exchange(next_place(), outputs, inputs));
  }
  c10::intrusive_ptr<c10d::Work> reduce_scatter(
      Tensors& outputs, std::vector<Tensors>& inputs,
      const c10d::ReduceScatterOptions& options) override {
    return queued(make_parts_reduction(next_place(), outputs.front(), inputs.front(),
                                       reduce_op_of(options.reduceOp), piece_bytes_));
  }

  std::uint32_t next_tag() const { return collectiveCounter_; }
  /// The other ranks are to notice.
  void close_connections() {
    for (const auto& context : contexts_) context->closeConnections();
  }

 private:
  GlooPlace next_place() {
    const std::uint32_t tag = nextTag();
    return {getContext(tag), tag};
  }
  GlooWork queued(GlooWork work) {
    enqueue(work);
    return work;
  }

  const std::size_t piece_bytes_;
};

class GlooBackend final : public Backend {
 public:
  explicit GlooBackend(const BackendRequest& request) {
    auto options = ProcessGroupGloo::Options::create(request.timeout);
    GuardedDevice guarded =
        guard_device(ProcessGroupGloo::createDeviceForHostname(request.listen_host), request.size);
    guard_ = std::move(guarded.guard);
    options->devices.push_back(std::move(guarded.device));
    const Clock::TimePoint deadline = deadline_after(request.timeout);
    try {
      gloo_ = c10::make_intrusive<CountedGloo>(request, std::move(options));
    } catch (...) {
      const std::vector<int> broken = guard_->broken_ranks();
      if (broken.empty()) throw;
      const bool is_late = Clock::system().now() >= deadline;
      throw RpcError(is_late ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable,
                     absl::StrCat("Gloo cannot connect with rank ", broken.front(), ": ",
                                  describe(std::current_exception()).message));
    }
  }

  std::string_view name() const override { return "gloo"; }
  C10dBackend& c10d() override { return *gloo_; }

  bool can(Function) const override { return true; }
  bool reduces_parts(at::ScalarType, ReduceOp, bool) const override { return true; }

  bool reduces(at::ScalarType type, ReduceOp op) const override {
    if (op == ReduceOp::kAverage) return false;
    switch (type) {
      case at::kFloat:
      case at::kDouble:
      case at::kHalf:
        // std::min and std::max, which forget a NaN or not as its place has it.
        return op != ReduceOp::kMin && op != ReduceOp::kMax;
      case at::kChar:
      case at::kByte:
      case at::kInt:
      case at::kLong:
        return true;
      default:
        return false;
    }
  }

  bool has_future(Function function) const override {
    return function != Function::kSend && function != Function::kRecv &&
           function != Function::kRecvAnySource;
  }

  void announce(Function function, std::uint16_t digest) override {
    if (has_future(function)) {
      guard_->expect(gloo_->next_tag(), digest);
    } else {
      guard_->expect_point_to_point(digest);
    }
  }

  void abort(const absl::Status& reason) override {
    guard_->abort(std::string(reason.message()));
    gloo_->close_connections();
  }

  std::vector<int> awaited_ranks() const override { return guard_->awaited_ranks(); }
  std::vector<int> broken_ranks() const override { return guard_->broken_ranks(); }
  void watch_broken(std::function<void()> f) override { guard_->watch_broken(std::move(f)); }

 private:
  std::shared_ptr<TransportGuard> guard_;
  c10::intrusive_ptr<CountedGloo> gloo_;
};

}  // namespace

std::unique_ptr<Backend> make_gloo_backend(const BackendRequest& request) {
  return std::make_unique<GlooBackend>(request);
}

}  // namespace sinew::internal
