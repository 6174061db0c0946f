#include "training.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <stdexcept>

#include "ATen/ATen.h"
#include "checkpoint.h"
#include "network.h"
#include "pictures.h"
#include "schedule.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/progress_bar.h"
#include "sinew/examples/common/stop_signal.h"
#include "sinew/parallel/distributed_sampler.h"
#include "sinew/parallel/scaled_all_reduce.h"
#include "torch/optim/sgd.h"
#include "torch/utils.h"

namespace image_classifier {
namespace {

using examples::fixed;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

ResNetOptions network_options(const Options& options, const Pictures& train) {
  ResNetOptions network;
  network.stem = options.stem == "cifar" ? Stem::kCifar : Stem::kImageNet;
  network.channels = train.channels();
  network.width = options.width;
  network.classes = examples::ImageFolder::kClasses;
  return network;
}

Schedule schedule_of(const Options& options, int ranks) {
  Schedule schedule;
  schedule.peak = linearly_scaled(options.lr, options.batch * ranks);
  schedule.warmup_epochs = options.warmup_epochs;
  schedule.warmup_factor = options.warmup_factor;
  schedule.epochs = static_cast<double>(options.epochs);
  return schedule;
}

/// What a checkpoint depends on.
std::string settings_of(const Options& options, const examples::ImageFolder& data, int ranks) {
  std::string lines = "data: " + data.name + ", " + std::to_string(data.train.count()) +
                      " pictures\nranks: " + std::to_string(ranks) + "\nstem: " + options.stem;
  const auto add = [&lines](const std::string& name, double value) {
    lines += "\n" + name + ": " + examples::number(value);
  };
  add("width", static_cast<double>(options.width));
  add("epochs", static_cast<double>(options.epochs));
  add("batch", static_cast<double>(options.batch));
  add("lr", options.lr);
  add("momentum", options.momentum);
  add("weight-decay", options.weight_decay);
  add("warmup-epochs", options.warmup_epochs);
  add("warmup-factor", options.warmup_factor);
  add("max-steps", static_cast<double>(options.max_steps));
  add("round", static_cast<double>(options.round));
  add("seed", static_cast<double>(options.seed));
  return lines;
}

at::Tensor to_tensor(const std::vector<std::size_t>& chosen) {
  return at::tensor(std::vector<std::int64_t>(chosen.begin(), chosen.end()), at::kLong);
}

class Training {
 public:
  Training(const sinew::ProcessGroup& group, const examples::ImageFolder& data,
           const Options& options, std::ostream& log)
      : group_(group),
        options_(options),
        log_(log),
        train_(data.train, data.name),
        test_(data.test, data.name),
        augmentation_(usual_augmentation(data.name)),
        schedule_(schedule_of(options, group.size())),
        network_(mode_of(options.mode, group.size()), network_options(options, train_), group),
        optimizer_(network_.module().parameters(), torch::optim::SGDOptions(schedule_.peak)
                                                       .momentum(options.momentum)
                                                       .weight_decay(options.weight_decay)
                                                       .nesterov(options.momentum > 0)),
        sampler_(sampler_of(train_.count(), group, options)),
        steps_(steps_of_epoch()) {
    curve_.title = "ResNet-18 on " + data.name + ", " + std::to_string(group.size()) +
                   (group.size() == 1 ? " rank" : " ranks");
    curve_.unit = "Loss; share of right answers";
    curve_.names = {"training loss", "test loss", "test top-5", "test top-1"};
    if (!options.checkpoint.empty()) {
      checkpoints_.emplace(options.checkpoint, settings_of(options, data, group.size()));
    }
  }

  TrainingResult run() {
    if (options_.resume) resume();
    TrainingResult result;
    if (progress_.epoch >= options_.epochs) {
      say("There is nothing left to train");
      result.test = evaluate();
    }
    while (progress_.epoch < options_.epochs && !is_stopped_) {
      result.test = run_epoch().value_or(result.test);
    }
    result.stopped = progress_.epoch < options_.epochs;
    curve_.points = progress_.curve;
    result.curve = curve_;
    result.state = state();
    return result;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static sinew::parallel::DistributedSampler sampler_of(std::int64_t count,
                                                        const sinew::ProcessGroup& group,
                                                        const Options& options) {
    sinew::parallel::DistributedSamplerOptions sampler;
    sampler.remainder = sinew::parallel::Remainder::kDrop;
    sampler.seed = static_cast<std::uint64_t>(options.seed);
    return {static_cast<std::size_t>(count), group, sampler};
  }

  /// Batches that are full only: the same number at all ranks.
  std::int64_t steps_of_epoch() const {
    const std::int64_t all = train_.count() / group_.size() / options_.batch;
    if (all == 0) {
      throw std::invalid_argument(
          "--batch " + std::to_string(options_.batch) + " is more than the " +
          std::to_string(train_.count() / group_.size()) + " pictures that each rank has");
    }
    return options_.max_steps > 0 ? std::min(all, options_.max_steps) : all;
  }

  bool leads() const { return group_.rank() == 0; }

  void say(const std::string& line) {
    if (!leads()) return;
    bar_.clear();
    log_ << line + "\n" << std::flush;
  }

  void resume() {
    const std::optional<Progress> saved = checkpoints_->load(network_.module(), optimizer_, group_);
    if (!saved) return;
    progress_ = *saved;
    say("Going on after epoch " + std::to_string(progress_.epoch) + ", round " +
        std::to_string(progress_.round));
  }

  void save(const std::string& name) {
    if (checkpoints_ && leads()) {
      checkpoints_->save(name, network_.module(), optimizer_, progress_);
    }
  }

  /// None: a rank was asked to end before the epoch is over, and all of them do.
  std::optional<Metrics> run_epoch() {
    network_.module().train();
    sampler_.set_epoch(static_cast<std::uint64_t>(progress_.epoch));
    sampler_.reset();
    // What was done before the checkpoint is passed over.
    for (std::int64_t step = 0; step < progress_.round * options_.round; ++step) next_chosen();
    double seconds = 0;
    double samples = 0;
    while (progress_.round * options_.round < steps_) {
      const Clock::time_point start = Clock::now();
      const Metrics round = run_round();
      const double took = std::chrono::duration<double>(Clock::now() - start).count();
      seconds += took;
      samples += round.samples;
      tell_round(round, round.samples / took);
      if (is_stopped_ && steps_done() < steps_) {
        save("latest.pt");
        say("Stopped");
        return std::nullopt;
      }
      if (options_.checkpoint_rounds > 0 && progress_.round % options_.checkpoint_rounds == 0 &&
          progress_.round * options_.round < steps_) {
        save("latest.pt");
        say("Saved a checkpoint");
      }
    }
    return end_epoch(samples / seconds);
  }

  Metrics run_round() {
    const std::int64_t first = progress_.round * options_.round;
    const std::int64_t last = std::min(first + options_.round, steps_);
    at::Tensor sums = at::zeros({4}, at::kDouble).to(network_.device());
    for (std::int64_t step = first; step < last; ++step) {
      sums += run_step(step);
      show(step + 1);
    }
    ++progress_.round;
    const at::Tensor stops =
        at::full({1}, examples::StopSignal::requested() ? 1.0 : 0.0, at::kDouble)
            .to(network_.device());
    const Metrics round = over_all_ranks({sums, stops});
    is_stopped_ = stops.item<double>() > 0;
    progress_.train += round;
    progress_.curve.push_back({epochs_done(), {round.mean_loss(), kUnknown, kUnknown, kUnknown}});
    return round;
  }

  std::int64_t steps_done() const { return std::min(progress_.round * options_.round, steps_); }
  double epochs_done() const {
    return static_cast<double>(progress_.epoch) +
           static_cast<double>(steps_done()) / static_cast<double>(steps_);
  }

  at::Tensor run_step(std::int64_t step) {
    const double epoch = static_cast<double>(progress_.epoch) + static_cast<double>(step) / steps_;
    for (auto& parameters : optimizer_.param_groups()) {
      parameters.options().set_lr(schedule_.rate(epoch));
    }
    const std::uint64_t seed =
        ((static_cast<std::uint64_t>(options_.seed) * 1'000'003 + progress_.epoch) * 1'000'003 +
         step) *
            1'000'003 +
        group_.rank();
    const Batch batch = train_.batch(next_chosen(), augmentation_, seed);
    const at::Tensor labels = batch.labels.to(network_.device());
    optimizer_.zero_grad();
    const at::Tensor scores = network_.forward(batch.pictures.to(network_.device()));
    const at::Tensor loss = at::cross_entropy_loss(scores, labels);
    loss.backward();
    optimizer_.step();
    return sums_of(scores, labels, loss);
  }

  at::Tensor next_chosen() {
    return to_tensor(*sampler_.next(static_cast<std::size_t>(options_.batch)));
  }

  /// Puts sums over all ranks in place of the tensors, of which the first one is for metrics.
  Metrics over_all_ranks(const std::vector<at::Tensor>& tensors) const {
    // Sums of sums: the ranks may have had different numbers of samples.
    sinew::parallel::scaled_all_reduce(group_, tensors, 1);
    return to_metrics(tensors.front());
  }

  Metrics evaluate() {
    const at::NoGradGuard no_grad;
    network_.module().eval();
    network_.sync_buffers();
    sinew::parallel::DistributedSamplerOptions in_order;
    in_order.shuffle = sinew::parallel::Shuffle::kNever;
    in_order.remainder = sinew::parallel::Remainder::kUneven;
    sinew::parallel::DistributedSampler sampler(static_cast<std::size_t>(test_.count()), group_,
                                                in_order);
    at::Tensor sums = at::zeros({4}, at::kDouble).to(network_.device());
    while (const auto chosen = sampler.next(static_cast<std::size_t>(options_.batch))) {
      const Batch batch = test_.batch(to_tensor(*chosen), Augmentation::kNone, 0);
      const at::Tensor labels = batch.labels.to(network_.device());
      // Without DDP, which is for steps that all ranks make: some may have a batch less.
      const at::Tensor scores = network_.module().forward(batch.pictures.to(network_.device()));
      sums += sums_of(scores, labels, at::cross_entropy_loss(scores, labels));
    }
    return over_all_ranks({sums});
  }

  Metrics end_epoch(double rate) {
    const Metrics test = evaluate();
    const Metrics train = progress_.train;
    progress_.train = {};
    progress_.round = 0;
    ++progress_.epoch;
    progress_.curve.push_back({static_cast<double>(progress_.epoch),
                               {kUnknown, test.mean_loss(), test.top5_share(), test.top1_share()}});
    say("Epoch " + std::to_string(progress_.epoch) + ": train loss " + fixed(train.mean_loss(), 4) +
        ", test loss " + fixed(test.mean_loss(), 4) + ", top-1 " + fixed(test.top1_share(), 4) +
        ", top-5 " + fixed(test.top5_share(), 4) + ", " + fixed(rate, 0) + " samples/s");
    curve_.points = progress_.curve;
    if (leads() && !options_.output.empty()) {
      examples::write_curve(curve_, options_.output, "training_curve");
    }
    const bool best = test.top1_share() > progress_.best_top1;
    progress_.best_top1 = std::max(progress_.best_top1, test.top1_share());
    save("latest.pt");
    if (best) save("best.pt");
    return test;
  }

  void tell_round(const Metrics& round, double rate) {
    const double last_step = epochs_done() - 1 / static_cast<double>(steps_);
    say("Epoch " + std::to_string(progress_.epoch + 1) + ", step " + std::to_string(steps_done()) +
        " of " + std::to_string(steps_) + ": loss " + fixed(round.mean_loss(), 4) + ", top-1 " +
        fixed(round.top1_share(), 4) + ", top-5 " + fixed(round.top5_share(), 4) + ", rate " +
        fixed(schedule_.rate(last_step), 5) + ", " + fixed(rate, 0) + " samples/s");
  }

  void show(std::int64_t step) {
    if (!leads()) return;
    bar_.show(static_cast<double>(step) / static_cast<double>(steps_),
              "epoch " + std::to_string(progress_.epoch + 1) + ", step " + std::to_string(step) +
                  " of " + std::to_string(steps_));
  }

  std::vector<at::Tensor> state() {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : network_.module().parameters()) {
      copies.push_back(tensor.detach().clone());
    }
    for (const at::Tensor& tensor : network_.module().buffers()) copies.push_back(tensor.clone());
    return copies;
  }

  const sinew::ProcessGroup group_;
  const Options options_;
  std::ostream& log_;
  const Pictures train_;
  const Pictures test_;
  const Augmentation augmentation_;
  const Schedule schedule_;
  Network network_;
  torch::optim::SGD optimizer_;
  sinew::parallel::DistributedSampler sampler_;
  const std::int64_t steps_;
  std::optional<CheckpointFolder> checkpoints_;
  Progress progress_;
  bool is_stopped_ = false;
  examples::TrainingCurve curve_;
  examples::ProgressBar bar_;
};

}  // namespace

TrainingResult train(const sinew::ProcessGroup& group, const examples::ImageFolder& data,
                     const Options& options, std::ostream& log) {
  // DDP hands rank 0's parameters to all; a single process draws the same ones.
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  return Training(group, data, options, log).run();
}

}  // namespace image_classifier
