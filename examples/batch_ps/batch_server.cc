#include "batch_server.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "ATen/ATen.h"
#include "torch/optim/sgd.h"

namespace batch_ps {

BatchServer::BatchServer(double lr, std::int64_t seed, const std::string& history)
    : parameters_(make_parameters(seed)), history_(history, kServerName, kModelName) {
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::zeros_like(parameter);
  optimizer_ = std::make_unique<torch::optim::SGD>(parameters_, torch::optim::SGDOptions(lr));
}
BatchServer::~BatchServer() = default;

// Tensors are sent from where they are, and the next step changes the parameters in place.
Parameters BatchServer::parameters() const {
  Parameters copies;
  for (const at::Tensor& parameter : parameters_) copies.push_back(parameter.clone());
  return copies;
}

sinew::Future<Parameters> BatchServer::update(const Gradients& gradients) {
  check(gradients.values);
  batch_.push_back({gradients, {}});
  sinew::Future<Parameters> updated = batch_.back().promise.future();
  if (batch_.size() >= trainers_) step();
  return updated;
}

void BatchServer::set_trainers(std::size_t trainers) {
  trainers_ = trainers;
  if (!batch_.empty() && batch_.size() >= trainers_) step();
}

void BatchServer::check(const Parameters& values) const {
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

// One along the mean of what all trainers have sent; each gets the new model.
void BatchServer::step() {
  const std::vector<Pending> batch = std::exchange(batch_, {});
  const double share = 1.0 / static_cast<double>(batch.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& mean = parameters_[i].mutable_grad();
    mean.zero_();
    for (const Pending& one : batch) mean.add_(one.gradients.values[i], share);
  }
  optimizer_->step();
  ++steps_;
  for (const Pending& one : batch) history_.add_applied(one.gradients.id);
  const Parameters updated = parameters();
  for (const Pending& one : batch) one.promise.set_value(updated);
}

}  // namespace batch_ps
