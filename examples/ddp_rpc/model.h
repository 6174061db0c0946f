#pragma once

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "bags.h"
#include "sinew/sinew.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"

namespace ddp_rpc {

/// The sum of the vectors of a bag's words. Lives on the parameter server.
class EmbeddingTable : public torch::nn::Module {
 public:
  explicit EmbeddingTable(std::int64_t seed);
  /// {words}, {bags} to {bags, kWidth}. Thread-safe.
  at::Tensor forward(const at::Tensor& words, const at::Tensor& offsets);

  static constexpr std::int64_t kWidth = 16;

 private:
  torch::nn::EmbeddingBag table_{nullptr};
};

/// Turns such a sum into a score for each class. Each trainer has one.
class DensePart : public torch::nn::Module {
 public:
  explicit DensePart(std::int64_t seed);
  /// {bags, kWidth} to {bags, kClasses}.
  at::Tensor forward(const at::Tensor& embedded);

 private:
  torch::nn::Linear scores_{nullptr};
};

}  // namespace ddp_rpc

SINEW_MODULE(ddp_rpc::EmbeddingTable, (std::int64_t));
