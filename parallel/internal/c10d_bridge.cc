#include "sinew/parallel/internal/c10d_bridge.h"

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <map>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "sinew/groups/internal/c10d_access.h"

namespace sinew::parallel::internal {
namespace {

// As LibTorch's own DistributedDataParallel.
constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;

/// LibTorch's own Work of a future has no result() without Python.
class DoneWork final : public c10d::Work {
 public:
  explicit DoneWork(const at::Tensor& result) : result_{result} {}

  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  std::exception_ptr exception() const override { return nullptr; }
  std::vector<at::Tensor> result() override { return result_; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(result_));
    return future;
  }

 private:
  const std::vector<at::Tensor> result_;
};

}  // namespace

c10::intrusive_ptr<c10::ivalue::Future> to_c10(const Future<at::Tensor>& future) {
  auto result = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
  future.on_done([result](const Future<at::Tensor>& done) {
    if (done.error() != nullptr) return result->setError(done.error());
    result->markCompleted(c10::IValue(done.value()));
  });
  return result;
}

c10::intrusive_ptr<c10d::Work> done_work(const at::Tensor& result) {
  return c10::make_intrusive<DoneWork>(result);
}

void broadcast_all(const ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root) {
  if (group.size() == 1) return;
  const at::AutoGradMode no_grad(false);
  std::map<c10::DeviceType, std::vector<at::Tensor>> by_device;
  for (const at::Tensor& tensor : tensors) {
    by_device[tensor.device().type()].push_back(tensor.detach());
  }
  for (const auto& [device, all] : by_device) {
    c10d::broadcast_coalesced(sinew::internal::c10d_group_of(group, device), all, kBroadcastBytes,
                              root);
  }
}

}  // namespace sinew::parallel::internal
