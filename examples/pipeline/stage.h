#pragma once

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/sinew.h"
#include "torch/nn/modules/linear.h"

namespace pipeline {

struct StageSettings {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  /// Between layers; all but the last one are that wide.
  std::int64_t width = 128;
  std::int64_t layers = 2;
  std::int64_t seed = 1;
  /// Whether a ReLU follows the last layer too: so in all stages but the last one.
  bool relu_at_end = true;
};

/// Some layers of a network, at one worker. Thread-safe while nobody steps its parameters.
class Stage {
 public:
  explicit Stage(const StageSettings& settings);

  /// Fetches the input from where it was made, which is the stage before, and not the driver.
  at::Tensor forward(const sinew::RRef<at::Tensor>& input);
  /// The same with the tensor itself.
  at::Tensor forward_local(const at::Tensor& input);

  std::vector<at::Tensor> parameters() const;
  std::vector<sinew::RRef<at::Tensor>> parameter_rrefs() const;

 private:
  const bool relu_at_end_;
  std::vector<torch::nn::Linear> layers_;
};

void add_stage_methods(sinew::MethodTable& methods);

/// A network whose stages lie on workers, one each, and its training.
class Pipeline {
 public:
  /// Makes the stages: `inputs` numbers go into the first one, `outputs` come out of the last one.
  Pipeline(const sinew::Worker& worker, const std::vector<sinew::Peer>& peers,
           const StageSettings& settings, double lr);

  /// The scores of `input`, which is cut into so many parts: while a stage works on one, the stage
  /// before works on the next. In a context gradients go the same way back.
  at::Tensor forward(const at::Tensor& input, std::int64_t micro_batches) const;
  /// One step of Adam at all stages. Returns the loss.
  double train_step(const at::Tensor& input, const at::Tensor& targets,
                    std::int64_t micro_batches) const;

  const std::vector<sinew::RRef<at::Tensor>>& parameters() const { return parameters_; }

  /// How the stages of a network divide it up.
  static std::vector<StageSettings> divide(const StageSettings& whole, std::size_t stages);

 private:
  const sinew::Worker worker_;
  std::vector<sinew::RRef<Stage>> stages_;
  std::vector<sinew::RRef<at::Tensor>> parameters_;
  sinew::optim::DistributedOptimizer optimizer_;
};

}  // namespace pipeline

SINEW_STRUCT(pipeline::StageSettings, inputs, outputs, width, layers, seed, relu_at_end);
SINEW_SERVICE(pipeline::Stage, (pipeline::StageSettings), forward, parameter_rrefs);
