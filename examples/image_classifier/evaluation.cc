#include "evaluation.h"

#include <utility>

#include "ATen/ATen.h"
#include "sinew/parallel/distributed_sampler.h"
#include "sinew/parallel/scaled_all_reduce.h"

namespace image_classifier {

Metrics over_all_ranks(const sinew::ProcessGroup& group, const std::vector<at::Tensor>& tensors) {
  // Sums of sums: the ranks may have had different numbers of samples.
  sinew::parallel::scaled_all_reduce(group, tensors, 1);
  return to_metrics(tensors.front());
}

Batch on_device(const Batch& batch, const at::Device& device, BatchMemory memory) {
  const bool beside = memory == BatchMemory::kPinned;
  return {batch.pictures.to(device, /*non_blocking=*/beside),
          batch.labels.to(device, /*non_blocking=*/beside)};
}

Metrics evaluate(Network& network, const PictureSet& set, const sinew::ProcessGroup& group,
                 const EvaluationOptions& options) {
  const at::NoGradGuard no_grad;
  network.module().eval();
  network.sync_buffers();
  sinew::parallel::DistributedSamplerOptions in_order;
  in_order.shuffle = sinew::parallel::Shuffle::kNever;
  in_order.remainder = sinew::parallel::Remainder::kUneven;
  sinew::parallel::DistributedSampler sampler(static_cast<std::size_t>(set.count()), group,
                                              in_order);
  std::vector<BatchLoader::Chosen> batches;
  while (const auto chosen = sampler.next(static_cast<std::size_t>(options.batch))) {
    batches.emplace_back(chosen->begin(), chosen->end());
  }
  const std::size_t count = batches.size();
  BatchLoader loader(set, options.loader);
  loader.start(0, std::move(batches));
  at::Tensor sums = no_sums(options.topk, network.device());
  for (std::size_t i = 0; i < count; ++i) {
    const Batch batch = on_device(loader.next(), network.device(), options.loader.memory);
    // Without DDP, which is for steps that all ranks make: some may have a batch less.
    const at::Tensor scores = network.module().forward(batch.pictures);
    sums +=
        sums_of(scores, batch.labels, at::cross_entropy_loss(scores, batch.labels), options.topk);
  }
  return over_all_ranks(group, {sums});
}

}  // namespace image_classifier
