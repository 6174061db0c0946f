#include "batch_server.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "ATen/ATen.h"
#include "torch/optim/sgd.h"

namespace batch_ps {
namespace {

/// A batch is one call of each trainer that is left, however long that takes.
sinew::BatcherOptions all_of(std::size_t trainers) {
  sinew::BatcherOptions options;
  options.max_batch = trainers;
  options.expected = trainers;
  options.max_wait = sinew::kNoTimeout;
  return options;
}

}  // namespace

BatchServer::BatchServer(std::size_t trainers, double lr, std::int64_t seed,
                         const std::filesystem::path& history)
    : parameters_(make_parameters(seed)),
      history_(history, kServerName, kModelName),
      batcher_([this](const std::vector<Gradients>& gradients) { return step(gradients); },
               all_of(trainers)) {
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::zeros_like(parameter);
  optimizer_ = std::make_unique<torch::optim::SGD>(parameters_, torch::optim::SGDOptions(lr));
}
BatchServer::~BatchServer() = default;

Parameters BatchServer::parameters() const {
  const absl::MutexLock lock(&mutex_);
  return copy_locked();
}

sinew::Future<Parameters> BatchServer::update(const Gradients& gradients) {
  const Parameters& values = gradients.values;
  {
    const absl::MutexLock lock(&mutex_);
    if (values.size() != parameters_.size()) {
      throw std::invalid_argument("the model has " + std::to_string(parameters_.size()) +
                                  " parameters, and not " + std::to_string(values.size()));
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i].sizes() != parameters_[i].sizes()) {
        throw std::invalid_argument("gradient " + std::to_string(i) + " has another shape");
      }
    }
  }
  return batcher_(gradients);
}

// One along the mean of what all trainers have sent; each gets the new model.
std::vector<Parameters> BatchServer::step(const std::vector<Gradients>& gradients) {
  const absl::MutexLock lock(&mutex_);
  const double share = 1.0 / static_cast<double>(gradients.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& mean = parameters_[i].mutable_grad();
    mean.zero_();
    for (const Gradients& one : gradients) mean.add_(one.values[i], share);
  }
  optimizer_->step();
  ++steps_;
  for (const Gradients& one : gradients) history_.add_applied(one.id);
  return std::vector<Parameters>(gradients.size(), copy_locked());
}

void BatchServer::set_trainers(std::size_t trainers) { batcher_.set_expected(trainers); }

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
