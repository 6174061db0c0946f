#include "training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "ATen/ATen.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/progress_bar.h"

namespace ps_rnn {
namespace {

using examples::fixed;
using sinew::optim::DistributedOptimizer;

// Reading the text, a round and a checkpoint take as long as they take.
sinew::CallOptions patient() {
  sinew::CallOptions options;
  options.timeout = sinew::kNoTimeout;
  return options;
}

std::string note_of(std::int64_t epoch) { return "epoch " + std::to_string(epoch); }

// One of the two that are kept in turn.
std::string checkpoint_folder(std::int64_t epoch) { return epoch % 2 == 0 ? "even" : "odd"; }

// Without a round in between. Somebody who is lost again and again is not lost by accident.
constexpr int kMostRecoveriesInVain = 10;

/// Waits for all, so that nobody works any more when it throws what the first one failed with.
template <class T>
std::vector<T> all_of(const std::vector<sinew::Future<T>>& futures) {
  std::exception_ptr failure;
  std::vector<T> values;
  for (const auto& one : futures) {
    try {
      values.push_back(one.wait());
    } catch (...) {
      if (failure == nullptr) failure = std::current_exception();
    }
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  return values;
}

std::filesystem::path latest_file(const Options& options) { return options.checkpoint / "latest"; }

}  // namespace

sinew::optim::Options optimizer_options(const std::string& name, double lr) {
  sinew::optim::Options options;
  if (name == "sgd" || name == "momentum") {
    sinew::optim::SgdOptions sgd;
    sgd.momentum = name == "momentum" ? 0.9 : 0;
    options = sgd;
  } else if (name == "adagrad") {
    options = sinew::optim::AdagradOptions();
  } else if (name == "adam") {
    options = sinew::optim::AdamOptions();
  } else if (name == "rmsprop") {
    options = sinew::optim::RmsPropOptions();
  } else {
    throw std::invalid_argument("there is no optimizer " + name);
  }
  options.set_learning_rate(lr);
  return options;
}

ModelSettings model_settings(const Options& options, std::int64_t ntoken) {
  ModelSettings model;
  model.ntoken = ntoken;
  model.ninp = options.ninp;
  model.nhid = options.nhid;
  model.nlayers = options.nlayers;
  model.dropout = options.dropout;
  model.seed = options.seed;
  // The other optimizers change all rows in each step, also those that were not looked up.
  model.sparse_embedding = options.optimizer == "sgd" || options.optimizer == "adagrad";
  return model;
}

Training::Training(const sinew::Worker& worker, const std::vector<sinew::Peer>& trainers,
                   const std::vector<sinew::Peer>& servers, const Options& options,
                   std::int64_t ntoken)
    : worker_(worker), options_(options) {
  settings_.trainers = static_cast<std::int64_t>(trainers.size());
  settings_.model = model_settings(options, ntoken);
  settings_.data = options.data.string();
  settings_.ntoken = options.corpus.ntoken;
  settings_.limit = options.corpus.limit;
  settings_.batch = options.batch;
  settings_.bptt = options.bptt;
  settings_.max_steps = options.max_steps;
  settings_.scores_to_trainer = options.scores_to_trainer;
  settings_.optimizer = options.optimizer;
  settings_.learning_rate = options.learning_rate(1);

  for (const sinew::Peer& server : servers) server_names_.push_back(server.info().name);
  servers_ = ServerModel::make(servers, settings_.model);
  server_optimizer_ =
      DistributedOptimizer(worker, servers_.parameters(),
                           optimizer_options(settings_.optimizer, settings_.learning_rate));
  TrainerSettings settings = settings_;
  for (const sinew::Peer& trainer : trainers) {
    trainers_.push_back(
        trainer.with(patient()).remote<Trainer>(settings, servers_, server_optimizer_));
    ++settings.number;
  }
  all_trainers_ = trainers_;
  plans_.resize(trainers_.size());
  // All have as many: their shares are equal.
  for (const auto& trainer : trainers_) {
    share_steps_ = trainer.with(patient()).call<&Trainer::steps>();
  }
}

std::int64_t Training::steps() const {
  std::int64_t most = 0;
  for (const Plan& plan : plans_) most = std::max(most, steps_of(plan));
  return most;
}

std::int64_t Training::number_of(const sinew::RRef<Trainer>& trainer) const {
  const auto at = std::find_if(all_trainers_.begin(), all_trainers_.end(), [&](const auto& one) {
    return one.owner().incarnation == trainer.owner().incarnation;
  });
  return at - all_trainers_.begin();
}

std::string Training::folder_of(const sinew::RRef<Trainer>& trainer) const {
  return "now/trainer" + std::to_string(number_of(trainer));
}

void Training::spread(const Plan& orphaned) {
  const std::vector<Plan> more = split(orphaned, static_cast<std::int64_t>(plans_.size()));
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    plans_[i].insert(plans_[i].end(), more[i].begin(), more[i].end());
  }
}

void Training::begin_epoch(std::int64_t epoch) {
  Plan orphaned;
  for (std::int64_t share = 0; share < settings_.trainers; ++share) {
    orphaned.push_back({share, 0, share_steps_});
  }
  for (std::size_t i = 0; i < trainers_.size(); ++i) {
    const auto own = orphaned.begin() + number_of(trainers_[i]);
    plans_[i] = {*own};
    own->last = 0;
  }
  spread(rest_of(orphaned, 0));
  const double lr = options_.learning_rate(epoch);
  server_optimizer_.set_learning_rate(lr);
  for (std::size_t i = 0; i < trainers_.size(); ++i) {
    trainers_[i].call<&Trainer::begin_epoch>(epoch, lr, plans_[i]);
  }
  epoch_ = epoch;
  done_ = 0;
}

Loss Training::round(std::int64_t steps) {
  servers_.begin_round(epoch_, done_);
  std::vector<sinew::Future<Loss>> parts;
  for (const auto& trainer : trainers_) {
    parts.push_back(trainer.with(patient()).async<&Trainer::train>(steps));
  }
  Loss total;
  for (const Loss& part : all_of(parts)) total += part;
  if (trainers_.size() > 1) average();
  done_ += steps;
  recoveries_in_vain_ = 0;
  return total;
}

// Each trainer moves away with its LSTM, while all use one embedding and decoder: after some steps
// these would serve nobody. So the LSTMs meet in their middle.
void Training::average() {
  std::vector<at::Tensor> mean;
  for (const auto& trainer : trainers_) {
    const std::vector<at::Tensor> values = trainer.call<&Trainer::parameters>();
    if (mean.empty()) mean.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      mean[i] = mean[i].defined() ? mean[i].add_(values[i]) : values[i].clone();
    }
  }
  for (at::Tensor& value : mean) value.div_(static_cast<double>(trainers_.size()));
  for (const auto& trainer : trainers_) trainer.call<&Trainer::set_parameters>(mean);
}

Loss Training::evaluate() {
  servers_.train(false);
  std::vector<std::vector<std::int64_t>> shares(trainers_.size());
  for (std::int64_t share = 0; share < settings_.trainers; ++share) {
    shares[static_cast<std::size_t>(share) % shares.size()].push_back(share);
  }
  std::vector<sinew::Future<Loss>> parts;
  for (std::size_t i = 0; i < trainers_.size(); ++i) {
    parts.push_back(trainers_[i].with(patient()).async<&Trainer::evaluate>(shares[i]));
  }
  Loss total;
  for (const Loss& part : all_of(parts)) total += part;
  servers_.train(true);
  return total;
}

// ---- Losses of processes.

void Training::begin_checkpoint() {
  if (options_.checkpoint.empty()) return;
  finish_checkpoint();
  sinew::optim::SaveOptions how;
  how.kept = kCheckpointsKept;
  Checkpoint next{{epoch_, {}, done_}, trainers_, plans_, {}, {}};
  for (const auto& trainer : trainers_) {
    trainer.call<&Trainer::begin_checkpoint>(folder_of(trainer));
    next.parts.push_back(trainer.with(patient()).async<&Trainer::finish_checkpoint>());
  }
  next.servers = server_optimizer_.save_async("now/servers", how, patient());
  writing_ = std::move(next);
}

void Training::finish_checkpoint() {
  if (!writing_) return;
  all_of(writing_->parts);
  writing_->servers.wait();
  written_ = std::exchange(writing_, std::nullopt);
}

void Training::recover(const sinew::RpcError& error) {
  const auto is_loss = [](const sinew::RpcError& one) {
    return one.code() == sinew::ErrorCode::kUnavailable;
  };
  if (!written_ || !is_loss(error) || ++recoveries_in_vain_ > kMostRecoveriesInVain) throw error;
  const auto start = std::chrono::steady_clock::now();
  writing_.reset();
  // Who is lost may be known to another one first: then the first calls fail, and this one knows.
  for (bool is_back = false; !is_back;) {
    try {
      find_servers();
      restore();
      is_back = true;
    } catch (const sinew::RpcError& again) {
      if (!is_loss(again)) throw;
    }
  }
  ++failovers_.count;
  failovers_.seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Training::find_servers() {
  for (std::size_t i = 0; i < server_names_.size(); ++i) {
    if (servers_.embedding[i].module_rref().peer().alive()) continue;
    const auto ready = worker_.find<std::string>(server_names_[i] + "/" + kReady,
                                                 std::chrono::seconds(options_.server_wait));
    servers_.make_at(ready.peer(), static_cast<std::int64_t>(i), settings_.model);
  }
}

// Trainers that are lost have left their steps since the checkpoint to the others, and what they
// have not read yet.
void Training::restore() {
  const Checkpoint& from = *written_;
  trainers_.clear();
  plans_.clear();
  std::vector<std::uint64_t> numbers;
  Plan orphaned;
  for (std::size_t i = 0; i < from.trainers.size(); ++i) {
    if (from.trainers[i].peer().alive()) {
      trainers_.push_back(from.trainers[i]);
      plans_.push_back(from.plans[i]);
      numbers.push_back(from.parts[i].wait());
      continue;
    }
    const Plan rest = rest_of(from.plans[i], from.position.done);
    orphaned.insert(orphaned.end(), rest.begin(), rest.end());
  }
  spread(orphaned);
  server_optimizer_ = server_optimizer_.rebind(
      servers_.parameters(), optimizer_options(settings_.optimizer, settings_.learning_rate));
  server_optimizer_.load("now/servers", from.servers.wait().number, patient());
  servers_.train(true);
  for (std::size_t i = 0; i < trainers_.size(); ++i) {
    trainers_[i].with(patient()).call<&Trainer::restore>(
        servers_, server_optimizer_, folder_of(trainers_[i]), numbers[i],
        Position{from.position.epoch, plans_[i], from.position.done});
  }
  if (epoch_ == from.position.epoch) failovers_.lost_steps += done_ - from.position.done;
  epoch_ = from.position.epoch;
  done_ = from.position.done;
}

// The note says which epoch a part is of, and `latest` which one all parts have, but those of
// trainers that were lost: "3 without 1".
void Training::save(std::int64_t epoch) {
  const std::string folder = checkpoint_folder(epoch);
  server_optimizer_.save(folder + "/servers", note_of(epoch), patient());
  std::set<std::int64_t> lost;
  for (std::int64_t number = 0; number < settings_.trainers; ++number) lost.insert(number);
  for (const auto& trainer : trainers_) {
    const std::int64_t number = number_of(trainer);
    trainer.with(patient()).call<&Trainer::save>(folder + "/trainer" + std::to_string(number),
                                                 note_of(epoch));
    lost.erase(number);
  }
  std::string latest = std::to_string(epoch) + (lost.empty() ? "" : " without");
  for (const std::int64_t number : lost) latest += " " + std::to_string(number);
  examples::replace_file(latest_file(options_), latest + "\n");
}

std::int64_t Training::load() {
  std::istringstream latest(examples::read_file(latest_file(options_)));
  std::int64_t epoch = 0;
  if (!(latest >> epoch) || epoch < 1) {
    throw std::runtime_error(latest_file(options_).string() + " does not say which epoch is saved");
  }
  std::string without;
  std::set<std::int64_t> lost;
  latest >> without;
  for (std::int64_t number = 0; latest >> number;) lost.insert(number);

  const std::string folder = checkpoint_folder(epoch);
  std::vector<std::string> notes = {server_optimizer_.load(folder + "/servers", patient()).note};
  for (std::size_t i = 0; i < trainers_.size(); ++i) {
    if (lost.count(static_cast<std::int64_t>(i)) > 0) {
      // All LSTMs were the same.
      trainers_[i].call<&Trainer::set_parameters>(trainers_[0].call<&Trainer::parameters>());
      continue;
    }
    notes.push_back(
        trainers_[i].with(patient()).call<&Trainer::load>(folder + "/trainer" + std::to_string(i)));
  }
  for (const std::string& note : notes) {
    if (note != note_of(epoch)) {
      throw std::runtime_error(latest_file(options_).string() + " says " + note_of(epoch) +
                               ", and a part of that checkpoint says " + note);
    }
  }
  epoch_ = epoch;
  return epoch;
}

namespace {

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

  /// What threw RpcError is done again from the last checkpoint.
  void run_epoch(std::int64_t epoch, TrainingResult& result) {
    const std::vector<LossCurve::Point> before = result.curve.points;
    const auto start = std::chrono::steady_clock::now();
    while (true) {
      try {
        train_epoch(epoch);
        result.curve.points = before;
        end_epoch(epoch, start, result);
        return;
      } catch (const sinew::RpcError& error) {
        recover(epoch, error);
      }
    }
  }

 private:
  double share(std::int64_t steps) const {
    return static_cast<double>(steps) / static_cast<double>(training_.steps());
  }

  void train_epoch(std::int64_t epoch) {
    if (training_.epoch() != epoch) {
      training_.begin_epoch(epoch);
      training_.begin_checkpoint();
      rounds_.clear();
    }
    while (training_.done() < training_.steps()) {
      if (is_due(training_.done())) training_.begin_checkpoint();
      run_round();
    }
    training_.begin_checkpoint();
    training_.finish_checkpoint();
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
    bar_.clear();
    log_ << "Epoch " << epoch << ": train perplexity " << fixed(std::exp(total.mean()), 2)
         << ", valid perplexity " << fixed(result.valid_perplexity, 2) << ", "
         << fixed(static_cast<double>(total.words) / seconds, 0) << " words/s" << std::endl;
  }

  void recover(std::int64_t epoch, const sinew::RpcError& error) {
    bar_.clear();
    log_ << "  " << error.message() << std::endl;
    const Failovers before = training_.failovers();
    training_.recover(error);
    const Failovers& after = training_.failovers();
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
  double trained_s_ = 0;
};

/// What the epochs before a restart have written.
void read_curve(LossCurve& curve, const Options& options, std::int64_t last_epoch) {
  const std::filesystem::path file = options.output / "loss_curve.csv";
  if (options.output.empty() || !std::filesystem::exists(file)) return;
  curve.points = points_from_csv(examples::read_file(file), static_cast<double>(last_epoch));
}

}  // namespace

TrainingResult train(const sinew::Worker& worker, const std::vector<sinew::Peer>& trainers,
                     const std::vector<sinew::Peer>& servers, const Options& options,
                     std::ostream& log) {
  TrainingResult result;
  const Corpus corpus = load_corpus(options.data, options.corpus);
  result.curve.title = title_of(options);
  result.curve.unigram_perplexity = unigram_perplexity(corpus);
  log << options.data.string() << ": " << corpus.train.size() << " words to train with, "
      << corpus.valid.size() << " to validate with, " << corpus.tokens() << " different ones\n"
      << "Unigram model: valid perplexity " << fixed(result.curve.unigram_perplexity, 2)
      << std::endl;
  Training training(worker, trainers, servers, options, corpus.tokens());
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
  while (epoch < options.epochs) course.run_epoch(++epoch, result);
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
