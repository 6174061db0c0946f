#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/rpc/batcher.h"
#include "sinew/sinew.h"

namespace inference_server {

/// What a network is made of.
struct NetworkSettings {
  std::int64_t width = 0;
  std::int64_t layers = 0;
  std::int64_t classes = 10;
  std::int64_t seed = 0;
};

/// Answers requests of any number of clients, as many as there are with one pass of its network. A
/// request that waits holds no thread. Thread-safe.
class Classifier {
 public:
  Classifier(const NetworkSettings& settings, const sinew::BatcherOptions& batching);
  ~Classifier();

  /// {width} features to {classes} scores. Throws std::invalid_argument for another shape.
  sinew::Future<at::Tensor> scores(const at::Tensor& features);
  sinew::BatcherStats stats() const { return batcher_.stats(); }

 private:
  class Network;

  std::vector<at::Tensor> classify(const std::vector<at::Tensor>& rows);

  const std::int64_t width_;
  const std::unique_ptr<Network> network_;
  // The last member: its batches use the others.
  sinew::Batcher<at::Tensor, at::Tensor> batcher_;
};

}  // namespace inference_server

SINEW_METHOD(inference_server::Classifier::scores);
