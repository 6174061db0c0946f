#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/optim/options.h"
#include "sinew/sinew.h"

/// A model that is spread over workers, and the same one in one place. Each worker has an embedding
/// (sparse gradients, when asked for), a weight matrix and a bias.
namespace testoptim {

/// What one worker owns.
class Shard {
 public:
  Shard(std::int64_t seed, bool sparse);

  std::vector<sinew::RRef<at::Tensor>> parameters();
  /// tanh(embedding of `rows`, plus `input`, times the weight, plus the bias). Without `bias` it is
  /// left out, and gets no gradient.
  at::Tensor forward(const at::Tensor& rows, const at::Tensor& input, bool bias);
  /// Copies of the parameters, in the order of parameters().
  std::vector<at::Tensor> values();
  /// Copies of what the parameters have got in a context; undefined where that is nothing.
  std::vector<at::Tensor> gradients(const sinew::autograd::ContextId& context);
  /// Sets `.grad` of all parameters, which is the program's and no optimizer's.
  void set_grads(double value);
  /// The sum of all elements of all `.grad`.
  double sum_of_grads();

  const std::vector<at::Tensor>& local() const { return parameters_; }

 private:
  const bool sparse_;
  std::vector<at::Tensor> parameters_;
};

/// One step's data: the same for the distributed and the local run.
struct Batch {
  at::Tensor rows;
  at::Tensor input;
  bool bias = true;
};
Batch batch(std::int64_t step);

/// One of LibTorch's optimizers on local tensors, or one of those in own_optimizers.h.
class LocalTraining {
 public:
  LocalTraining(std::int64_t shards, bool sparse, const sinew::optim::Options& options);
  /// As above, with options of their own for all biases.
  LocalTraining(std::int64_t shards, bool sparse, const sinew::optim::Options& options,
                const sinew::optim::Options& of_biases);
  ~LocalTraining();
  void step(const Batch& batch);
  void set_learning_rate(double lr);
  void set_options(std::size_t group, const sinew::optim::Options& options);
  /// All shards' parameters.
  std::vector<at::Tensor> values() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

/// The same on workers 1, 2, ... of `self`.
class RemoteTraining {
 public:
  RemoteTraining(const sinew::Worker& self, std::int64_t shards, bool sparse);

  std::vector<sinew::RRef<at::Tensor>> parameters() const;
  /// All but the biases, and these.
  std::vector<sinew::RRef<at::Tensor>> without_biases() const;
  std::vector<sinew::RRef<at::Tensor>> biases() const;
  /// Forward through all shards, and the loss. Needs a context.
  at::Tensor loss(const Batch& batch) const;
  /// Forward, backward and a step.
  sinew::optim::StepReport step(const sinew::optim::DistributedOptimizer& optimizer,
                                const Batch& batch) const;
  std::vector<at::Tensor> values() const;

  const std::vector<sinew::RRef<Shard>>& shards() const { return shards_; }

 private:
  const sinew::Worker self_;
  std::vector<sinew::RRef<Shard>> shards_;
  std::vector<std::vector<sinew::RRef<at::Tensor>>> parameters_;
};

/// The largest difference of elements, relative to the larger of 1 and the element.
double difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

void add_methods(sinew::MethodTable& methods);

}  // namespace testoptim

SINEW_SERVICE(testoptim::Shard, (std::int64_t, bool));
SINEW_METHOD(testoptim::Shard::parameters, testoptim::Shard::forward, testoptim::Shard::values,
             testoptim::Shard::gradients, testoptim::Shard::set_grads,
             testoptim::Shard::sum_of_grads);
