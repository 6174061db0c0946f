#include "course.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "sinew/examples/common/files.h"
#include "sinew/examples/common/progress_bar.h"
#include "sinew/examples/common/stop_signal.h"

namespace ps_rnn {
namespace {

using examples::fixed;

std::string title_of(const Options& options) {
  return options.data.filename().string() + ", " + options.optimizer + ", " +
         std::to_string(options.trainers) + (options.trainers == 1 ? " trainer, " : " trainers, ") +
         std::to_string(options.servers) + (options.servers == 1 ? " server" : " servers");
}

void write_curve(const LossCurve& curve, const Options& options) {
  if (options.output.empty()) return;
  examples::replace_file(options.output / "loss_curve.csv", to_csv(curve));
  examples::replace_file(options.output / "loss_curve.svg", to_svg(curve));
}

/// The loop, and what people see of it.
class Course {
 public:
  Course(Training& training, const Options& options, std::ostream& log)
      : training_(training), options_(options), log_(log) {}

  /// What threw RpcError is done again from the last checkpoint. False: the process was asked to
  /// end before the epoch was over.
  bool run_epoch(std::int64_t epoch, TrainingResult& result) {
    const std::vector<LossCurve::Point> before = result.curve.points;
    const auto start = std::chrono::steady_clock::now();
    while (true) {
      try {
        if (!train_epoch(epoch)) return false;
        result.curve.points = before;
        end_epoch(epoch, start, result);
        return true;
      } catch (const sinew::RpcError& error) {
        // Others were asked to end too, or this worker has left.
        if (examples::StopSignal::requested()) throw;
        recover(epoch, error);
      }
    }
  }

 private:
  double share(std::int64_t steps) const {
    return static_cast<double>(steps) / static_cast<double>(training_.steps());
  }

  bool train_epoch(std::int64_t epoch) {
    if (training_.epoch() != epoch) {
      training_.begin_epoch(epoch);
      training_.begin_checkpoint();
      rounds_.clear();
    }
    while (training_.done() < training_.steps()) {
      if (is_due(training_.done())) training_.begin_checkpoint();
      run_round();
      if (examples::StopSignal::requested()) return false;
    }
    training_.begin_checkpoint();
    training_.finish_checkpoint();
    return true;
  }
  bool is_due(std::int64_t done) const {
    const std::int64_t interval = options_.checkpoint_rounds * options_.round;
    return interval > 0 && done > 0 && done % interval == 0;
  }

  void end_epoch(std::int64_t epoch, std::chrono::steady_clock::time_point start,
                 TrainingResult& result) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const Loss valid = training_.evaluate();
    Loss total;
    for (const Round& round : rounds_) {
      total += round.loss;
      result.curve.points.push_back(
          {static_cast<double>(epoch - 1) + share(round.done), round.loss.mean(), 0});
    }
    result.curve.points.back().valid_loss = valid.mean();
    write_curve(result.curve, options_);
    if (!options_.checkpoint.empty()) training_.save(epoch);
    trained_s_ += seconds;
    result.words += total.words;
    result.words_per_s = static_cast<double>(result.words) / trained_s_;
    result.valid_perplexity = std::exp(valid.mean());
    result.failovers = training_.failovers();
    say_take_overs();
    bar_.clear();
    log_ << "Epoch " << epoch << ": train perplexity " << fixed(std::exp(total.mean()), 2)
         << ", valid perplexity " << fixed(result.valid_perplexity, 2) << ", "
         << fixed(static_cast<double>(total.words) / seconds, 0) << " words/s" << std::endl;
  }

  void recover(std::int64_t epoch, const sinew::RpcError& error) {
    say_take_overs();
    bar_.clear();
    log_ << "  " << error.message() << std::endl;
    const Failovers before = training_.failovers();
    training_.recover(error);
    const Failovers after = told_ = training_.failovers();
    log_ << "  going on at step " << training_.done() << " of epoch " << training_.epoch()
         << " with " << training_.trainers().size()
         << " trainers: " << after.lost_steps - before.lost_steps << " steps are made again, after "
         << fixed(after.seconds - before.seconds, 1) << " s" << std::endl;
    if (training_.epoch() != epoch) return;
    while (!rounds_.empty() && rounds_.back().done > training_.done()) rounds_.pop_back();
  }

  void run_round() {
    const std::int64_t epoch = training_.epoch();
    const std::int64_t steps = std::min(options_.round, training_.steps() - training_.done());
    const auto start = std::chrono::steady_clock::now();
    const Loss loss = training_.round(steps);
    say_take_overs();
    say_standbys();
    const std::int64_t done = training_.done();
    rounds_.push_back({done, loss});
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::string speed = fixed(static_cast<double>(loss.words) / seconds, 0) + " words/s";
    bar_.clear();
    log_ << "  epoch " << epoch << ", step " << done << " of " << training_.steps()
         << ": train perplexity " << fixed(std::exp(loss.mean()), 2) << ", " << speed << std::endl;
    bar_.show(
        (static_cast<double>(epoch - 1) + share(done)) / static_cast<double>(options_.epochs),
        "epoch " + std::to_string(epoch) + " of " + std::to_string(options_.epochs) + ", " + speed);
  }

  /// Also of those between two rounds, in a checkpoint for example.
  void say_take_overs() {
    const Failovers before = std::exchange(told_, training_.failovers());
    if (told_.count == before.count) return;
    bar_.clear();
    log_ << "  a standby has taken over, after " << fixed(told_.seconds - before.seconds, 1) << " s"
         << std::endl;
  }

  void say_standbys() {
    const std::int64_t standbys = training_.standbys();
    if (std::exchange(standbys_, standbys) == standbys) return;
    bar_.clear();
    log_ << "  " << standbys << " of " << options_.servers << " servers have a standby"
         << std::endl;
  }

  struct Round {
    /// Steps of the epoch when it ended.
    std::int64_t done = 0;
    Loss loss;
  };

  Training& training_;
  const Options& options_;
  std::ostream& log_;
  examples::ProgressBar bar_;
  // Of this epoch.
  std::vector<Round> rounds_;
  // What has been said of losses, and of standbys.
  Failovers told_;
  std::int64_t standbys_ = 0;
  double trained_s_ = 0;
};

/// What the epochs before a restart have written.
void read_curve(LossCurve& curve, const Options& options, std::int64_t last_epoch) {
  const std::filesystem::path file = options.output / "loss_curve.csv";
  if (options.output.empty() || !std::filesystem::exists(file)) return;
  curve.points = points_from_csv(examples::read_file(file), static_cast<double>(last_epoch));
}

}  // namespace

TrainingResult train(const sinew::Worker& worker, const Team& team, const Options& options,
                     std::ostream& log) {
  TrainingResult result;
  const Corpus corpus = load_corpus(options.data, options.corpus);
  result.curve.title = title_of(options);
  result.curve.unigram_perplexity = unigram_perplexity(corpus);
  log << options.data.string() << ": " << corpus.train.size() << " words to train with, "
      << corpus.valid.size() << " to validate with, " << corpus.tokens() << " different ones\n"
      << "Unigram model: valid perplexity " << fixed(result.curve.unigram_perplexity, 2)
      << std::endl;
  Training training(worker, team, options, corpus.tokens());
  std::int64_t epoch = 0;
  if (options.resume) {
    epoch = training.load();
    read_curve(result.curve, options, epoch);
    log << "Going on after epoch " << epoch << std::endl;
    if (epoch >= options.epochs) {
      throw std::runtime_error("the checkpoint is of epoch " + std::to_string(epoch) +
                               ", and --epochs is " + std::to_string(options.epochs) +
                               ": there is nothing left to train");
    }
  }
  Course course(training, options, log);
  training.begin_checkpoint();
  training.finish_checkpoint();
  while (epoch < options.epochs && !result.stopped) {
    result.stopped = !course.run_epoch(++epoch, result);
  }
  if (result.stopped) log << "Stopped in epoch " << epoch << std::endl;
  return result;
}

std::string to_json(const TrainingResult& result, const Options& options) {
  return "{\"trainers\": " + std::to_string(options.trainers) +
         ", \"servers\": " + std::to_string(options.servers) + ", \"optimizer\": \"" +
         options.optimizer + "\", \"words\": " + std::to_string(result.words) +
         ", \"words_per_s\": " + fixed(result.words_per_s, 1) +
         ", \"unigram_perplexity\": " + fixed(result.curve.unigram_perplexity, 3) +
         ", \"valid_perplexity\": " + fixed(result.valid_perplexity, 3) +
         ", \"failovers\": " + std::to_string(result.failovers.count) +
         ", \"lost_steps\": " + std::to_string(result.failovers.lost_steps) +
         ", \"failover_s\": " + fixed(result.failovers.seconds, 3) + "}";
}

}  // namespace ps_rnn
