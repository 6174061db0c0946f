#include "stage.h"

#include <cmath>

#include "ATen/ATen.h"
#include "ATen/CPUGeneratorImpl.h"
#include "sinew/examples/common/split_linear.h"

namespace pipeline {

Stage::Stage(const StageSettings& settings) : relu_at_end_(settings.relu_at_end) {
  const at::Generator random =
      at::detail::createCPUGenerator(static_cast<std::uint64_t>(settings.seed));
  const at::NoGradGuard no_grad;
  for (std::int64_t layer = 0; layer < settings.layers; ++layer) {
    const std::int64_t inputs = layer == 0 ? settings.inputs : settings.width;
    const std::int64_t outputs = layer + 1 == settings.layers ? settings.outputs : settings.width;
    torch::nn::Linear linear(inputs, outputs);
    const double bound = std::sqrt(3.0 / static_cast<double>(inputs));
    linear->weight.uniform_(-bound, bound, random);
    linear->bias.zero_();
    layers_.push_back(linear);
  }
}

at::Tensor Stage::forward(const sinew::RRef<at::Tensor>& input) {
  return forward_local(input.to_here());
}

at::Tensor Stage::forward_local(const at::Tensor& input) {
  at::Tensor hidden = input;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    // The stage before waits for the gradient of `hidden`, not for those of the weights.
    hidden = examples::split_linear(hidden, layers_[layer]->weight, layers_[layer]->bias);
    if (layer + 1 < layers_.size() || relu_at_end_) hidden = hidden.relu();
  }
  return hidden;
}

std::vector<at::Tensor> Stage::parameters() const {
  std::vector<at::Tensor> all;
  for (const torch::nn::Linear& layer : layers_) {
    for (const at::Tensor& parameter : layer->parameters()) all.push_back(parameter);
  }
  return all;
}

std::vector<sinew::RRef<at::Tensor>> Stage::parameter_rrefs() const {
  return sinew::parameter_rrefs(*this);
}

void add_stage_methods(sinew::MethodTable& methods) { methods.serve<Stage>(); }

std::vector<StageSettings> Pipeline::divide(const StageSettings& whole, std::size_t stages) {
  std::vector<StageSettings> parts;
  for (std::size_t number = 0; number < stages; ++number) {
    StageSettings part = whole;
    part.inputs = number == 0 ? whole.inputs : whole.width;
    part.outputs = number + 1 == stages ? whole.outputs : whole.width;
    part.relu_at_end = number + 1 < stages;
    part.seed = whole.seed * 1000 + static_cast<std::int64_t>(number);
    parts.push_back(part);
  }
  return parts;
}

Pipeline::Pipeline(const sinew::Worker& worker, const std::vector<sinew::Peer>& peers,
                   const StageSettings& settings, double lr)
    : worker_(worker) {
  const std::vector<StageSettings> parts = divide(settings, peers.size());
  for (std::size_t number = 0; number < peers.size(); ++number) {
    stages_.push_back(peers[number].remote<Stage>(parts[number]));
    for (const auto& parameter : stages_.back().call<&Stage::parameter_rrefs>()) {
      parameters_.push_back(parameter);
    }
  }
  sinew::optim::AdamOptions adam;
  adam.lr = lr;
  optimizer_ = {worker, parameters_, adam};
}

// References are passed along, so that a tensor goes straight from the stage that made it to the
// one that needs it. Nothing waits here before the last stage has been told of all parts.
at::Tensor Pipeline::forward(const at::Tensor& input, std::int64_t micro_batches) const {
  std::vector<sinew::Future<at::Tensor>> parts;
  for (const at::Tensor& part : input.chunk(micro_batches)) {
    sinew::RRef<at::Tensor> here = sinew::make_rref(worker_, part);
    for (std::size_t stage = 0; stage + 1 < stages_.size(); ++stage) {
      here = stages_[stage].remote<&Stage::forward>(here);
    }
    parts.push_back(stages_.back().async<&Stage::forward>(here));
  }
  std::vector<at::Tensor> scores;
  scores.reserve(parts.size());
  for (const auto& part : parts) scores.push_back(part.wait());
  return at::cat(scores);
}

double Pipeline::train_step(const at::Tensor& input, const at::Tensor& targets,
                            std::int64_t micro_batches) const {
  const sinew::autograd::Context context(worker_);
  const at::Tensor loss = at::cross_entropy_loss(forward(input, micro_batches), targets);
  sinew::autograd::backward(context, {loss});
  optimizer_.step(context);
  return loss.item<double>();
}

}  // namespace pipeline
