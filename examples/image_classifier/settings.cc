#include "settings.h"

#include <algorithm>
#include <stdexcept>

#include "sinew/examples/common/files.h"
#include "torch/cuda.h"

namespace image_classifier {

ResNetOptions network_options(const Options& options, const DataSets& data,
                              const sinew::ProcessGroup& group) {
  const PictureShape shape = data.train->shape();
  ResNetOptions network;
  network.model = options.model;
  network.stem = options.stem == "cifar" ? Stem::kCifar : Stem::kImageNet;
  network.channels = shape.channels;
  network.picture = {shape.height, shape.width};
  network.width = options.width;
  network.classes = data.classes;
  if (options.sync_batch_norm) network.norms_over = group;
  if (options.checkpoint_activations) network.activations = Activations::kComputedAgain;
  return network;
}

Schedule schedule_of(const Options& options, int ranks) {
  Schedule schedule;
  schedule.peak = linearly_scaled(options.lr, options.batch * options.accumulate * ranks);
  schedule.warmup_epochs = options.warmup_epochs;
  schedule.warmup_factor = options.warmup_factor;
  schedule.epochs = static_cast<double>(options.epochs);
  schedule.steps = options.rate_steps;
  return schedule;
}

SgdSettings sgd_settings(const Options& options, const Schedule& schedule) {
  return {schedule.peak, options.momentum, options.weight_decay};
}

LoaderOptions loader_options(const Options& options) {
  LoaderOptions loader;
  loader.workers = static_cast<int>(options.workers);
  if (options.pin_memory && torch::cuda::is_available()) loader.memory = BatchMemory::kPinned;
  return loader;
}

EvaluationOptions evaluation_options(const Options& options) {
  return {options.batch, options.topk, loader_options(options)};
}

sinew::parallel::DistributedSampler sampler_of(std::int64_t count, const sinew::ProcessGroup& group,
                                               const Options& options) {
  sinew::parallel::DistributedSamplerOptions sampler;
  sampler.remainder = sinew::parallel::Remainder::kDrop;
  sampler.seed = static_cast<std::uint64_t>(options.seed);
  return {static_cast<std::size_t>(count), group, sampler};
}

std::int64_t steps_of_epoch(const Options& options, std::int64_t pictures, int ranks) {
  const std::int64_t of_rank = pictures / ranks;
  const std::int64_t all = of_rank / (options.batch * options.accumulate);
  if (all == 0) {
    const bool accumulates = options.accumulate > 1;
    throw std::invalid_argument(
        "--batch " + std::to_string(options.batch) +
        (accumulates ? " times --accumulate " + std::to_string(options.accumulate) : "") +
        " is more than the " + std::to_string(of_rank) + " pictures that each rank has");
  }
  return options.max_steps > 0 ? std::min(all, options.max_steps) : all;
}

std::string settings_text(const Options& options, const DataSets& data, int ranks) {
  std::string lines = "data: " + data.name + ", " + std::to_string(data.train->count()) +
                      " pictures\nranks: " + std::to_string(ranks) + "\nstem: " + options.stem +
                      "\nmodel: " + options.model + "\nlr-schedule: " + options.lr_schedule;
  const auto add = [&lines](const std::string& name, double value) {
    lines += "\n" + name + ": " + examples::number(value);
  };
  const PictureShape shape = data.train->shape();
  add("height of pictures", static_cast<double>(shape.height));
  add("width of pictures", static_cast<double>(shape.width));
  add("classes", static_cast<double>(data.classes));
  add("width", static_cast<double>(options.width));
  add("sync-batch-norm", options.sync_batch_norm ? 1 : 0);
  add("zero", options.zero ? 1 : 0);
  add("epochs", static_cast<double>(options.epochs));
  add("batch", static_cast<double>(options.batch));
  add("accumulate", static_cast<double>(options.accumulate));
  add("lr", options.lr);
  add("momentum", options.momentum);
  add("weight-decay", options.weight_decay);
  add("warmup-epochs", options.warmup_epochs);
  add("warmup-factor", options.warmup_factor);
  add("max-steps", static_cast<double>(options.max_steps));
  add("round", static_cast<double>(options.round));
  add("seed", static_cast<double>(options.seed));
  lines += "\ntopk:";
  for (const std::int64_t k : options.topk) lines += " " + std::to_string(k);
  return lines;
}

}  // namespace image_classifier
