#pragma once

#include <torch/nn.h>

#include <cstdint>
#include <vector>

namespace testranks {

/// A perceptron with `layers` hidden layers, in double precision, so that sums in another order
/// make little difference. The same for the same seed.
class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(std::uint64_t seed, std::int64_t layers = 2, std::int64_t width = 16);
  at::Tensor forward(at::Tensor input);

  static constexpr std::int64_t kInputs = 6;
  static constexpr std::int64_t kOutputs = 3;

 private:
  std::vector<torch::nn::Linear> layers_;
};

/// Two branches of which one forward() may use one: 0, 1, or both (2).
class Branches : public torch::nn::Module {
 public:
  explicit Branches(std::uint64_t seed);
  at::Tensor forward(const at::Tensor& input, int which);

  torch::nn::Linear first{nullptr};
  torch::nn::Linear second{nullptr};
};

/// An embedding with sparse gradients, and a layer behind it. The same everywhere.
class Words : public torch::nn::Module {
 public:
  Words();
  at::Tensor forward(const at::Tensor& rows) { return linear->forward(table->forward(rows)); }

  torch::nn::Embedding table{nullptr};
  torch::nn::Linear linear{nullptr};
};

/// Rows from `begin` to `end` of a data set that all ranks can make.
struct Batch {
  at::Tensor input;
  at::Tensor target;
  Batch rows(std::int64_t begin, std::int64_t end) const;
  /// The part of a rank: of equal sizes.
  Batch part(int rank, int ranks) const;
};
Batch make_batch(std::uint64_t seed, std::int64_t rows);

at::Tensor mean_loss(const at::Tensor& output, const at::Tensor& target);

/// The largest difference of elements.
double difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);
std::vector<at::Tensor> grads_of(const torch::nn::Module& module);
/// Copies.
std::vector<at::Tensor> values_of(const torch::nn::Module& module);

}  // namespace testranks
