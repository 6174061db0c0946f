#pragma once

#include <cstdint>
#include <vector>

#include "data/batch_loader.h"
#include "metrics.h"
#include "network.h"
#include "sinew/groups/process_group.h"

namespace image_classifier {

/// Sums over all ranks in place of the tensors, of which the first one is for metrics.
Metrics over_all_ranks(const sinew::ProcessGroup& group, const std::vector<at::Tensor>& tensors);

/// On the device of a network.
Batch on_device(const Batch& batch, const at::Device& device, BatchMemory memory);

struct EvaluationOptions {
  std::int64_t batch = 64;
  std::vector<std::int64_t> topk = {1, 5};
  LoaderOptions loader;
};

/// Over all ranks, each of which takes a part of the pictures; each picture counts once. All ranks
/// call it.
Metrics evaluate(Network& network, const PictureSet& set, const sinew::ProcessGroup& group,
                 const EvaluationOptions& options);

}  // namespace image_classifier
