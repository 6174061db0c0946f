#pragma once

#include <functional>
#include <memory>
#include <string>

#include "models/resnet.h"
#include "sinew/groups/process_group.h"
#include "sinew/parallel/distributed_data_parallel.h"

namespace image_classifier {

/// How the ranks or devices share the work.
enum class Mode { kSingle, kDataParallel, kDistributedDataParallel };

/// What `--mode` says; empty: by the number of ranks. Throws std::invalid_argument for a mode of
/// one process that several were started for, and std::runtime_error where there are not enough
/// GPUs.
Mode mode_of(const std::string& name, int ranks);

/// A ResNet, run in one of the modes. All ranks make one at the same time, on the same seed.
class Network {
 public:
  /// `prepare` may give the network other weights: at rank 0, whose values all ranks get. What it
  /// throws, all throw.
  Network(Mode mode, const ResNetOptions& options, const sinew::ProcessGroup& group,
          const std::function<void(ResNet&)>& prepare = nullptr);

  at::Tensor forward(const at::Tensor& pictures);
  /// Does `pass`, whose gradients stay with this rank until a pass outside of it.
  void without_sync(const std::function<void()>& pass);
  /// Gives all ranks the running means and variances of rank 0, before an evaluation.
  void sync_buffers();
  ResNet& module() { return *module_; }
  const at::Device& device() const { return device_; }

 private:
  const Mode mode_;
  const at::Device device_;
  const std::shared_ptr<ResNet> module_;
  /// Null in the other modes.
  std::unique_ptr<sinew::parallel::DistributedDataParallel<ResNet>> distributed_;
};

}  // namespace image_classifier
