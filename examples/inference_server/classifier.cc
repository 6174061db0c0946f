#include "classifier.h"

#include <sstream>
#include <stdexcept>
#include <utility>

#include "ATen/ATen.h"
#include "torch/nn.h"

namespace inference_server {

/// Layers of one width with ReLU between them, and a last one with the classes.
class Classifier::Network {
 public:
  explicit Network(const NetworkSettings& settings) {
    at::manual_seed(static_cast<std::uint64_t>(settings.seed));
    for (std::int64_t layer = 1; layer < settings.layers; ++layer) {
      layers_->push_back(torch::nn::Linear(settings.width, settings.width));
      layers_->push_back(torch::nn::ReLU());
    }
    layers_->push_back(torch::nn::Linear(settings.width, settings.classes));
  }
  at::Tensor forward(const at::Tensor& rows) { return layers_->forward(rows); }

 private:
  torch::nn::Sequential layers_;
};

Classifier::Classifier(const NetworkSettings& settings, const sinew::BatcherOptions& batching)
    : width_(settings.width),
      network_(std::make_unique<Network>(settings)),
      batcher_([this](std::vector<at::Tensor> rows) { return classify(rows); }, batching) {}

Classifier::~Classifier() = default;

sinew::Future<at::Tensor> Classifier::scores(const at::Tensor& features) {
  // Here, where it is the mistake of one: what fails in a batch fails for all of it.
  if (features.dim() != 1 || features.size(0) != width_ || features.scalar_type() != at::kFloat) {
    std::ostringstream text;
    text << "a request is " << width_ << " floats, and not " << features.toString() << " "
         << features.sizes();
    throw std::invalid_argument(text.str());
  }
  return batcher_(features);
}

std::vector<at::Tensor> Classifier::classify(const std::vector<at::Tensor>& rows) {
  const at::NoGradGuard no_grad;
  return network_->forward(at::stack(rows)).unbind();
}

}  // namespace inference_server
