#pragma once

/// What samples take for granted, by the folder of their header: variables, and functions of no
/// library. Nothing of it is defined.

#include <torch/cuda.h>
#include <torch/data.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/groups/process_group.h"
#include "sinew/optim/publication.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/parallel/sync_batch_norm.h"
#include "sinew/testing/cluster.h"
#include "sinew/tests/samples/app.h"

// Samples declare what they do not use, and drop results.
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wunused-variable"

namespace app {

using Batch = torch::data::Example<>;
using Network = torch::nn::Sequential;
class TorchNet : public torch::nn::Module {
 public:
  explicit TorchNet(std::int64_t width = 0);
  at::Tensor forward(const at::Tensor& input);
};

}  // namespace app

// Where a module is in this process, or is the class of a RemoteModule.
namespace app_optim_remote_module {
using Net = app::TorchNet;
}
namespace app_parallel_distributed_data_parallel {
using Net = app::TorchNet;
}

namespace samples {

using namespace std::chrono_literals;
extern sinew::Worker worker;
extern sinew::Peer peer;
extern at::Tensor input;
extern at::Tensor weight;

namespace rpc {
extern sinew::Peer learner;
extern sinew::WorkerOptions options;
extern sinew::MethodTable methods;
extern at::Tensor tensor;
extern std::string query;
extern std::vector<double> numbers;
extern bool is_draining_;
}  // namespace rpc

namespace rref {
extern sinew::RRef<app::Agent> agent;
extern sinew::Team<app::Observer> team;
extern sinew::Team<app::Shard> shards;
extern app::Settings settings;
extern at::Tensor state;
extern std::int64_t steps;
std::vector<std::string> part_of(int rank);
}  // namespace rref

namespace optim {
extern sinew::autograd::Context context;
extern sinew::optim::DistributedOptimizer optimizer;
extern sinew::optim::Options options;
extern std::vector<sinew::RRef<at::Tensor>> parameters;
extern at::Tensor loss;
extern std::shared_ptr<app::TorchNet> policy;
class Replica {
 public:
  void load(const sinew::optim::StateDict& tensors);
};
extern std::shared_ptr<Replica> replica;
}  // namespace optim

namespace parallel {
extern sinew::ProcessGroup group;
extern sinew::parallel::DistributedDataParallel<app::TorchNet> model;
extern sinew::parallel::SyncBatchNorm bn1;
extern torch::nn::Linear block1;
extern torch::nn::Linear layer;
extern at::Tensor x;
extern at::Tensor target;
extern std::vector<at::Tensor> data;
extern torch::data::datasets::TensorDataset dataset;
extern std::vector<app::Batch> batches;
extern std::size_t batch_size;
extern int epochs;
at::Tensor loss(const at::Tensor& output, const at::Tensor& target);
void use(const at::Tensor& row);
void train(const std::vector<torch::data::TensorExample>& batch);
void train(sinew::parallel::DistributedDataParallel<app::TorchNet>& model, const app::Batch& batch);
sinew::parallel::SyncBatchNorm register_module(const std::string& name,
                                               sinew::parallel::SyncBatchNorm module);
}  // namespace parallel

namespace testing {
using namespace sinew::testing;
using sinew::ErrorCode;
extern Cluster cluster;
extern sinew::Worker actor;
extern sinew::Peer learner;
extern sinew::Peer alice;
extern sinew::Peer bob;
extern at::Tensor x;
}  // namespace testing

}  // namespace samples
