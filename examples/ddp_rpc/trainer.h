#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "model.h"
#include "sinew/groups/process_group.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/sinew.h"

namespace ddp_rpc {

/// What a trainer is told when it is made.
struct TrainerSettings {
  std::int64_t number = 0;
  std::int64_t trainers = 1;
  std::int64_t batch = 1;
  double lr = 0.1;
  std::int64_t seed = 1;
  /// Where the dense part is; see examples::device_of().
  std::string device = "cpu";
};

/// Trains a copy of the dense part that stays equal to those of the other trainers, and the
/// embedding that all of them share. Made and called by the process that leads. All trainers are
/// made, and called, at the same time: they wait for each other.
class Trainer {
 public:
  Trainer(const TrainerSettings& settings, const sinew::RemoteModule<EmbeddingTable>& embedding);

  /// The mean loss over the bags of this trainer.
  double train(std::int64_t steps);
  /// Share of bags that the model is right about.
  double accuracy(std::int64_t bags, std::int64_t seed);
  /// Copies of those of the dense part, in host memory.
  std::vector<at::Tensor> parameters() const;

 private:
  const TrainerSettings settings_;
  const sinew::Worker worker_;
  const sinew::ProcessGroup group_;
  const sinew::RemoteModule<EmbeddingTable> embedding_;
  const at::Device device_;
  const std::shared_ptr<DensePart> dense_;
  sinew::parallel::DistributedDataParallel<DensePart> parallel_;
  sinew::optim::DistributedOptimizer optimizer_;
  std::int64_t step_ = 0;
};

/// The same in one process.
class LocalTrainer {
 public:
  explicit LocalTrainer(const TrainerSettings& settings);

  double train(std::int64_t steps);
  double accuracy(std::int64_t bags, std::int64_t seed);
  std::vector<at::Tensor> dense_parameters() const;
  std::vector<at::Tensor> embedding_parameters() const;

 private:
  const TrainerSettings settings_;
  const at::Device device_;
  EmbeddingTable embedding_;
  DensePart dense_;
  std::int64_t step_ = 0;
};

}  // namespace ddp_rpc

SINEW_STRUCT(ddp_rpc::TrainerSettings, number, trainers, batch, lr, seed, device);
SINEW_SERVICE(ddp_rpc::Trainer,
              (ddp_rpc::TrainerSettings, sinew::RemoteModule<ddp_rpc::EmbeddingTable>), train,
              accuracy, parameters);
