#include "training.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "ATen/ATen.h"
#include "ATen/Context.h"
#include "checkpoint.h"
#include "data/batch_loader.h"
#include "evaluation.h"
#include "first_rank.h"
#include "models/weights.h"
#include "network.h"
#include "optimizer.h"
#include "settings.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/progress_bar.h"
#include "sinew/examples/common/stop_signal.h"
#include "sinew/parallel/scaled_all_reduce.h"
#include "time_left.h"
#include "torch/cuda.h"
#include "torch/utils.h"

namespace image_classifier {
namespace {

using examples::fixed;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// What is left out of a curve at a point.
std::vector<double> unknown(std::size_t count) { return std::vector<double>(count, kUnknown); }

void compute_deterministically() {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
}

class Training {
 public:
  Training(const sinew::ProcessGroup& group, const DataSets& data, const Options& options,
           std::ostream& log)
      : group_(group),
        options_(options),
        data_(data),
        log_(log),
        loader_options_(loader_options(options)),
        schedule_(schedule_of(options, group.size())),
        network_(mode_of(options.mode, group.size()), network_options(options, data, group), group,
                 preparation(options)),
        optimizer_(make_sgd(network_.module().parameters(), sgd_settings(options, schedule_),
                            options.zero ? std::optional(group) : std::nullopt)),
        sampler_(sampler_of(data.train->count(), group, options)),
        loader_(*data.train, loader_options_),
        steps_(options.evaluate ? 1 : steps_of_epoch(options, data.train->count(), group.size())) {
    check_same_pictures(data.train->listing() + "\n" + data.test->listing(), group);
    curve_.title = options.model + " on " + data.name + ", " + std::to_string(group.size()) +
                   (group.size() == 1 ? " rank" : " ranks");
    curve_.unit = "Loss; share of right answers";
    curve_.names = {"training loss", "test loss"};
    for (auto k = options.topk.rbegin(); k != options.topk.rend(); ++k) {
      curve_.names.push_back("test top-" + std::to_string(*k));
    }
    if (!options.checkpoint.empty()) {
      checkpoints_.emplace(options.checkpoint, settings_text(options, data, group.size()));
    }
    if (options.pin_memory && loader_options_.memory != BatchMemory::kPinned) {
      say("--pin-memory has no effect: there is no CUDA here");
    }
  }

  TrainingResult run() {
    if (options_.resume) resume();
    TrainingResult result;
    if (options_.evaluate) {
      result.test = evaluate_now();
      say("Evaluation: " + shares_text(result.test, options_.topk) + ", " +
          fixed(result.test.samples, 0) + " pictures");
      result.state = state();
      return result;
    }
    if (progress_.epoch >= options_.epochs) {
      say("There is nothing left to train");
      result.test = evaluate_now();
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

  static std::function<void(ResNet&)> preparation(const Options& options) {
    if (options.weights.empty()) return nullptr;
    return [options](ResNet& network) {
      load_weights(network, options.weights, options.reset_head ? Head::kNew : Head::kFromFile);
    };
  }

  bool leads() const { return group_.rank() == 0; }

  void say(const std::string& line) {
    if (!leads()) return;
    bar_.clear();
    log_ << line + "\n" << std::flush;
  }

  void resume() {
    const std::optional<Progress> saved =
        checkpoints_->load(network_.module(), *optimizer_, group_);
    if (!saved) return;
    progress_ = *saved;
    say("Going on after epoch " + std::to_string(progress_.epoch) + ", round " +
        std::to_string(progress_.round));
  }

  /// All ranks call it: each may have a part of the optimizer's state.
  void save(const std::vector<std::string>& names) {
    if (!checkpoints_) return;
    const std::string optimizer = optimizer_->save();
    if (!leads()) return;
    for (const std::string& name : names) {
      checkpoints_->save(name, network_.module(), optimizer, progress_);
    }
  }

  /// Has the batches of an epoch made that were not done before the checkpoint.
  void start_loading() {
    sampler_.set_epoch(static_cast<std::uint64_t>(progress_.epoch));
    sampler_.reset();
    std::vector<BatchLoader::Chosen> batches;
    const std::int64_t done = progress_.round * options_.round * options_.accumulate;
    for (std::int64_t i = 0; i < steps_ * options_.accumulate; ++i) {
      const auto chosen = *sampler_.next(static_cast<std::size_t>(options_.batch));
      if (i >= done) batches.emplace_back(chosen.begin(), chosen.end());
    }
    loader_.start(static_cast<std::uint64_t>(progress_.epoch), std::move(batches));
  }

  /// None: a rank was asked to end before the epoch is over, and all of them do.
  std::optional<Metrics> run_epoch() {
    network_.module().train();
    start_loading();
    double seconds = 0;
    double samples = 0;
    while (progress_.round * options_.round < steps_) {
      const Clock::time_point start = Clock::now();
      const std::int64_t before = steps_done();
      const Metrics round = run_round();
      const double took = std::chrono::duration<double>(Clock::now() - start).count();
      seconds += took;
      samples += round.samples;
      seconds_of_step_ = took / static_cast<double>(steps_done() - before);
      tell_round(round, round.samples / took);
      if (options_.zero && !state_told_) tell_state();
      if (is_stopped_ && steps_done() < steps_) {
        save({"latest.pt"});
        say("Stopped");
        return std::nullopt;
      }
      if (options_.checkpoint_rounds > 0 && progress_.round % options_.checkpoint_rounds == 0 &&
          progress_.round * options_.round < steps_) {
        save({"latest.pt"});
        say("Saved a checkpoint");
      }
    }
    return end_epoch(samples / seconds);
  }

  Metrics run_round() {
    const std::int64_t first = progress_.round * options_.round;
    const std::int64_t last = std::min(first + options_.round, steps_);
    at::Tensor sums = no_sums(options_.topk, network_.device());
    for (std::int64_t step = first; step < last; ++step) {
      sums += run_step(step);
      show(step + 1);
    }
    ++progress_.round;
    const at::Tensor stops =
        at::full({1}, examples::StopSignal::requested() ? 1.0 : 0.0, at::kDouble)
            .to(network_.device());
    const Metrics round = over_all_ranks(group_, {sums, stops});
    is_stopped_ = stops.item<double>() > 0;
    progress_.train += round;
    std::vector<double> values = unknown(curve_.names.size());
    values[0] = round.mean_loss();
    progress_.curve.push_back({epochs_done(), std::move(values)});
    return round;
  }

  std::int64_t steps_done() const { return std::min(progress_.round * options_.round, steps_); }
  double epochs_done() const {
    return static_cast<double>(progress_.epoch) +
           static_cast<double>(steps_done()) / static_cast<double>(steps_);
  }

  at::Tensor run_step(std::int64_t step) {
    optimizer_->set_rate(schedule_.rate(static_cast<double>(progress_.epoch) +
                                        static_cast<double>(step) / static_cast<double>(steps_)));
    optimizer_->zero_grad();
    at::Tensor sums = no_sums(options_.topk, network_.device());
    for (std::int64_t pass = 1; pass < options_.accumulate; ++pass) {
      network_.without_sync([&] { sums += run_pass(); });
    }
    // This one brings the gradients of all passes to all ranks.
    sums += run_pass();
    optimizer_->step();
    return sums;
  }

  at::Tensor run_pass() {
    const Batch batch = on_device(loader_.next(), network_.device(), loader_options_.memory);
    const at::Tensor scores = network_.forward(batch.pictures);
    const at::Tensor loss = at::cross_entropy_loss(scores, batch.labels);
    // The mean over the pictures of all passes.
    (options_.accumulate == 1 ? loss : loss / options_.accumulate).backward();
    return sums_of(scores, batch.labels, loss, options_.topk);
  }

  Metrics evaluate_now() {
    return evaluate(network_, *data_.test, group_, evaluation_options(options_));
  }

  Metrics end_epoch(double rate) {
    const Metrics test = evaluate_now();
    const Metrics train = progress_.train;
    progress_.train = {};
    progress_.round = 0;
    ++progress_.epoch;
    std::vector<double> values = {kUnknown, test.mean_loss()};
    for (std::size_t k = options_.topk.size(); k-- > 0;) values.push_back(test.top_share(k));
    progress_.curve.push_back({static_cast<double>(progress_.epoch), std::move(values)});
    say("Epoch " + std::to_string(progress_.epoch) + ": train loss " + fixed(train.mean_loss(), 4) +
        ", test " + shares_text(test, options_.topk) + ", " + fixed(rate, 0) + " samples/s");
    curve_.points = progress_.curve;
    if (leads() && !options_.output.empty()) {
      examples::write_curve(curve_, options_.output, "training_curve");
    }
    const bool best = test.top_share(0) > progress_.best_top;
    progress_.best_top = std::max(progress_.best_top, test.top_share(0));
    save(best ? std::vector<std::string>{"latest.pt", "best.pt"}
              : std::vector<std::string>{"latest.pt"});
    return test;
  }

  /// "", or ", 12 min left".
  std::string left_after(std::int64_t step) const {
    if (!seconds_of_step_) return {};
    const std::int64_t steps = (options_.epochs - progress_.epoch) * steps_ - step;
    return ", " + time_text(*seconds_of_step_ * static_cast<double>(steps)) + " left";
  }

  void tell_round(const Metrics& round, double rate) {
    const double last_step = epochs_done() - 1 / static_cast<double>(steps_);
    say("Epoch " + std::to_string(progress_.epoch + 1) + ", step " + std::to_string(steps_done()) +
        " of " + std::to_string(steps_) + ": " + shares_text(round, options_.topk) + ", rate " +
        fixed(schedule_.rate(last_step), 5) + ", " + fixed(rate, 0) + " samples/s" +
        left_after(steps_done()));
  }

  void show(std::int64_t step) {
    if (!leads()) return;
    bar_.show(static_cast<double>(step) / static_cast<double>(steps_),
              "epoch " + std::to_string(progress_.epoch + 1) + ", step " + std::to_string(step) +
                  " of " + std::to_string(steps_) + left_after(step));
  }

  /// What each rank keeps of the optimizer's state, which is there after the first step.
  void tell_state() {
    state_told_ = true;
    std::vector<double> bytes(static_cast<std::size_t>(group_.size()), 0);
    bytes[static_cast<std::size_t>(group_.rank())] = static_cast<double>(optimizer_->state_bytes());
    bytes = sinew::parallel::scaled_all_reduce(group_, bytes, 1);
    std::string line = "Optimizer state:";
    double all = 0;
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
      line += " rank " + std::to_string(rank) + " " + fixed(bytes[rank] / (1 << 20), 2) + " MiB,";
      all += bytes[rank];
    }
    say(line + " of " + fixed(all / (1 << 20), 2) + " MiB");
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
  const DataSets data_;
  std::ostream& log_;
  const LoaderOptions loader_options_;
  const Schedule schedule_;
  Network network_;
  const std::unique_ptr<Sgd> optimizer_;
  sinew::parallel::DistributedSampler sampler_;
  BatchLoader loader_;
  const std::int64_t steps_;
  std::optional<CheckpointFolder> checkpoints_;
  Progress progress_;
  bool is_stopped_ = false;
  bool state_told_ = false;
  /// Of the last round.
  std::optional<double> seconds_of_step_;
  examples::TrainingCurve curve_;
  examples::ProgressBar bar_;
};

}  // namespace

std::string init_text(int local_rank, int rank) {
  return "[init] == local rank: " + std::to_string(local_rank) +
         ", global rank: " + std::to_string(rank) + " ==";
}

TrainingResult train(const sinew::ProcessGroup& group, const DataSets& data, const Options& options,
                     std::ostream& log) {
  if (options.deterministic) compute_deterministically();
  // DDP hands rank 0's parameters to all; a single process draws the same ones.
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  return Training(group, data, options, log).run();
}

}  // namespace image_classifier
