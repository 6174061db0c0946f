#include "batch_server.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "ATen/ATen.h"
#include "torch/optim/sgd.h"

namespace batch_ps {

BatchServer::BatchServer(std::size_t trainers, double lr, std::int64_t seed)
    : trainers_(trainers), parameters_(make_parameters(seed)) {
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::zeros_like(parameter);
  optimizer_ = std::make_unique<torch::optim::SGD>(parameters_, torch::optim::SGDOptions(lr));
}
BatchServer::~BatchServer() = default;

Parameters BatchServer::parameters() const {
  const absl::MutexLock lock(&mutex_);
  return copy_locked();
}

sinew::Future<Parameters> BatchServer::update(const Parameters& gradients) {
  // Without an executor, so that the thread which fills the batch also sends all answers.
  sinew::Promise<Parameters> promise(nullptr);
  sinew::Future<Parameters> fresh_model = promise.future();
  std::vector<sinew::Promise<Parameters>> released;
  Parameters model;
  {
    const absl::MutexLock lock(&mutex_);
    if (gradients.size() != parameters_.size()) {
      throw std::invalid_argument("the model has " + std::to_string(parameters_.size()) +
                                  " parameters, and not " + std::to_string(gradients.size()));
    }
    // All of them fit, or none is added.
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].sizes() != parameters_[i].sizes()) {
        throw std::invalid_argument("gradient " + std::to_string(i) + " has another shape");
      }
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      parameters_[i].mutable_grad().add_(gradients[i], 1.0 / static_cast<double>(trainers_));
    }
    waiting_.push_back(std::move(promise));
    if (waiting_.size() < trainers_) return fresh_model;
    optimizer_->step();
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().zero_();
    ++steps_;
    released.swap(waiting_);
    model = copy_locked();
  }
  for (const sinew::Promise<Parameters>& trainer : released) trainer.set_value(model);
  return fresh_model;
}

std::int64_t BatchServer::steps() const {
  const absl::MutexLock lock(&mutex_);
  return steps_;
}

// Tensors are sent from where they are, and the next step changes the parameters in place.
Parameters BatchServer::copy_locked() const {
  Parameters copies;
  for (const at::Tensor& parameter : parameters_) copies.push_back(parameter.clone());
  return copies;
}

}  // namespace batch_ps
