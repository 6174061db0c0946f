#include "network.h"

#include <stdexcept>

#include "ATen/ATen.h"
#include "data_parallel.h"
#include "first_rank.h"
#include "sinew/examples/common/ranks.h"
#include "torch/cuda.h"

namespace image_classifier {
namespace {

/// One GPU for each rank of a host, where there are any.
at::Device device_of_this_rank() {
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  if (gpus == 0) return at::kCPU;
  return {at::kCUDA, static_cast<c10::DeviceIndex>(examples::local_rank() % gpus)};
}

}  // namespace

Mode mode_of(const std::string& name, int ranks) {
  if (name == "ddp" || (name.empty() && ranks > 1)) return Mode::kDistributedDataParallel;
  if (ranks > 1) {
    throw std::invalid_argument("--mode " + name + " is for one process, and " +
                                std::to_string(ranks) + " were started");
  }
  if (name != "dp") return Mode::kSingle;
  check_data_parallel();
  return Mode::kDataParallel;
}

Network::Network(Mode mode, const ResNetOptions& options, const sinew::ProcessGroup& group,
                 const std::function<void(ResNet&)>& prepare)
    : mode_(mode), device_(device_of_this_rank()), module_(std::make_shared<ResNet>(options)) {
  if (prepare != nullptr) on_first_rank(group, [&] { prepare(*module_); });
  module_->to(device_);
  if (mode_ != Mode::kDistributedDataParallel) return;
  distributed_ = std::make_unique<sinew::parallel::DistributedDataParallel<ResNet>>(module_, group);
}

at::Tensor Network::forward(const at::Tensor& pictures) {
  switch (mode_) {
    case Mode::kSingle:
      break;
    case Mode::kDataParallel:
      return data_parallel(module_, pictures);
    case Mode::kDistributedDataParallel:
      return distributed_->forward(pictures);
  }
  return module_->forward(pictures);
}

void Network::without_sync(const std::function<void()>& pass) {
  if (!distributed_) return pass();
  const auto scope = distributed_->no_sync();
  pass();
}

void Network::sync_buffers() {
  if (distributed_) distributed_->sync_buffers();
}

}  // namespace image_classifier
