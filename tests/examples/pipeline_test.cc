#include <memory>
#include <vector>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "sinew/examples/common/spirals.h"
#include "sinew/examples/pipeline/stage.h"
#include "sinew/tests/support/cluster.h"
#include "torch/optim/adam.h"

namespace pipeline {
namespace {

constexpr std::size_t kStages = 3;
constexpr double kRate = 0.01;
constexpr std::int64_t kSteps = 6;

StageSettings some_settings() {
  StageSettings settings;
  settings.inputs = 2;
  settings.outputs = examples::Spirals::kClasses;
  settings.width = 16;
  return settings;
}

/// The same stages, one behind the other in one process, after some steps.
std::vector<at::Tensor> trained_locally() {
  std::vector<Stage> stages;
  std::vector<at::Tensor> parameters;
  for (const StageSettings& part : Pipeline::divide(some_settings(), kStages)) {
    stages.emplace_back(part);
    for (const at::Tensor& one : stages.back().parameters()) parameters.push_back(one);
  }
  torch::optim::Adam adam(parameters, torch::optim::AdamOptions(kRate));
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const auto data = examples::Spirals::make(24, step);
    at::Tensor hidden = data.points;
    for (Stage& stage : stages) hidden = stage.forward_local(hidden);
    adam.zero_grad();
    at::cross_entropy_loss(hidden, data.arms).backward();
    adam.step();
  }
  return parameters;
}

class PipelineTest : public sinew::testing::ClusterTest {};

TEST_P(PipelineTest, IsTheSameNetworkHoweverTheBatchIsCut) {
  const std::vector<at::Tensor> local = trained_locally();
  for (const std::int64_t micro_batches : {1, 4, 5}) {
    SCOPED_TRACE(micro_batches);
    sinew::MethodTable methods;
    add_stage_methods(methods);
    start(1 + static_cast<int>(kStages), methods,
          [](int, sinew::WorkerOptions& options) { options.num_threads = 1; });
    {
      std::vector<sinew::Peer> peers;
      for (std::size_t i = 1; i <= kStages; ++i) peers.push_back(worker(0).peer(i));
      const Pipeline network(worker(0), peers, some_settings(), kRate);
      for (std::int64_t step = 0; step < kSteps; ++step) {
        const auto data = examples::Spirals::make(24, step);
        network.train_step(data.points, data.arms, micro_batches);
      }
      ASSERT_EQ(network.parameters().size(), local.size());
      for (std::size_t i = 0; i < local.size(); ++i) {
        EXPECT_TRUE(at::allclose(network.parameters()[i].to_here(), local[i], 1e-3, 1e-4))
            << "parameter " << i;
      }
    }
    finish();
  }
}

SINEW_INSTANTIATE_CLUSTER_TEST(PipelineTest);

}  // namespace
}  // namespace pipeline
