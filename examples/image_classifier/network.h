#pragma once

#include <memory>
#include <string>

#include "resnet.h"
#include "sinew/groups/process_group.h"
#include "sinew/parallel/distributed_data_parallel.h"

namespace image_classifier {

/// How the ranks or devices share the work.
enum class Mode { kSingle, kDataParallel, kDistributedDataParallel };

/// What `--mode` says; empty: by the number of ranks. Throws std::invalid_argument for a mode of
/// one process that several were started for, and std::runtime_error where there are not enough
/// GPUs.
Mode mode_of(const std::string& name, int ranks);

/// A ResNet-18, run in one of the modes. All ranks make one at the same time, on the same seed.
class Network {
 public:
  Network(Mode mode, const ResNetOptions& options, const sinew::ProcessGroup& group);

  at::Tensor forward(const at::Tensor& pictures);
  /// Gives all ranks the running means and variances of rank 0, before an evaluation.
  void sync_buffers();
  ResNet18& module() { return *module_; }
  const at::Device& device() const { return device_; }

 private:
  const Mode mode_;
  const at::Device device_;
  const std::shared_ptr<ResNet18> module_;
  /// Null in the other modes.
  std::unique_ptr<sinew::parallel::DistributedDataParallel<ResNet18>> distributed_;
};

}  // namespace image_classifier
