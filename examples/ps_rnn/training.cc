#include "training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
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
  sinew::optim::set_learning_rate(options, lr);
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
  TrainerSettings settings;
  settings.trainers = static_cast<std::int64_t>(trainers.size());
  settings.model = model_settings(options, ntoken);
  settings.data = options.data.string();
  settings.ntoken = options.corpus.ntoken;
  settings.limit = options.corpus.limit;
  settings.batch = options.batch;
  settings.bptt = options.bptt;
  settings.max_steps = options.max_steps;
  settings.scores_to_trainer = options.scores_to_trainer;
  settings.optimizer = optimizer_options(options.optimizer, options.learning_rate(1));

  servers_ = ServerModel::make(worker, servers, settings.model);
  server_optimizer_ = DistributedOptimizer(worker, servers_.parameters(), settings.optimizer);
  for (const sinew::Peer& trainer : trainers) {
    trainers_.push_back(
        trainer.with(patient()).remote<Trainer>(settings, servers_, server_optimizer_));
    ++settings.number;
  }
  // All have as many: their shares are equal.
  for (const auto& trainer : trainers_) steps_ = trainer.with(patient()).call<&Trainer::steps>();
}

void Training::begin_epoch(std::int64_t epoch) {
  const double lr = options_.learning_rate(epoch);
  server_optimizer_.set_learning_rate(lr);
  servers_.begin_epoch(epoch);
  for (const auto& trainer : trainers_) {
    trainer.call<&Trainer::begin_epoch>(epoch, lr);
  }
}

Loss Training::round(std::int64_t steps) {
  std::vector<sinew::Future<Loss>> parts;
  for (const auto& trainer : trainers_) {
    parts.push_back(trainer.with(patient()).async<&Trainer::train>(steps));
  }
  Loss total;
  for (const auto& part : parts) total += part.wait();
  if (trainers_.size() > 1) average();
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
  std::vector<sinew::Future<Loss>> parts;
  for (const auto& trainer : trainers_) {
    parts.push_back(trainer.with(patient()).async<&Trainer::evaluate>());
  }
  Loss total;
  for (const auto& part : parts) total += part.wait();
  servers_.train(true);
  return total;
}

// The note says which epoch a part is of, and `latest` which one all parts have.
void Training::save(std::int64_t epoch) {
  const std::string folder = checkpoint_folder(epoch);
  server_optimizer_.save(folder + "/servers", note_of(epoch), patient());
  for (std::size_t i = 0; i < trainers_.size(); ++i) {
    trainers_[i].with(patient()).call<&Trainer::save>(folder + "/trainer" + std::to_string(i),
                                                      note_of(epoch));
  }
  examples::replace_file(latest_file(options_), std::to_string(epoch) + "\n");
}

std::int64_t Training::load() {
  const std::string text = examples::read_file(latest_file(options_));
  const std::int64_t epoch = std::strtoll(text.c_str(), nullptr, 10);
  if (epoch < 1) {
    throw std::runtime_error(latest_file(options_).string() + " does not say which epoch is saved");
  }
  const std::string folder = checkpoint_folder(epoch);
  std::vector<std::string> notes = {server_optimizer_.load(folder + "/servers", patient()).note};
  for (std::size_t i = 0; i < trainers_.size(); ++i) {
    notes.push_back(
        trainers_[i].with(patient()).call<&Trainer::load>(folder + "/trainer" + std::to_string(i)));
  }
  for (const std::string& note : notes) {
    if (note != note_of(epoch)) {
      throw std::runtime_error(latest_file(options_).string() + " says " + note_of(epoch) +
                               ", and a part of that checkpoint says " + note);
    }
  }
  return epoch;
}

namespace {

/// The loop, and what people see of it.
class Course {
 public:
  Course(Training& training, const Options& options, std::ostream& log)
      : training_(training), options_(options), log_(log) {}

  void run_epoch(std::int64_t epoch, TrainingResult& result) {
    const auto start = std::chrono::steady_clock::now();
    training_.begin_epoch(epoch);
    Loss total;
    for (std::int64_t done = 0; done < training_.steps();) {
      const std::int64_t steps = std::min(options_.round, training_.steps() - done);
      const Loss loss = run_round(epoch, done, steps);
      total += loss;
      done += steps;
      result.curve.points.push_back({static_cast<double>(epoch - 1) + share(done), loss.mean(), 0});
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    trained_s_ += seconds;
    result.words += total.words;
    result.words_per_s = static_cast<double>(result.words) / trained_s_;
    const Loss valid = training_.evaluate();
    result.curve.points.back().valid_loss = valid.mean();
    result.valid_perplexity = std::exp(valid.mean());
    bar_.clear();
    log_ << "Epoch " << epoch << ": train perplexity " << fixed(std::exp(total.mean()), 2)
         << ", valid perplexity " << fixed(result.valid_perplexity, 2) << ", "
         << fixed(static_cast<double>(total.words) / seconds, 0) << " words/s" << std::endl;
  }

 private:
  double share(std::int64_t steps) const {
    return static_cast<double>(steps) / static_cast<double>(training_.steps());
  }

  Loss run_round(std::int64_t epoch, std::int64_t done, std::int64_t steps) {
    const auto start = std::chrono::steady_clock::now();
    const Loss loss = training_.round(steps);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::string speed = fixed(static_cast<double>(loss.words) / seconds, 0) + " words/s";
    bar_.clear();
    log_ << "  epoch " << epoch << ", step " << done + steps << " of " << training_.steps()
         << ": train perplexity " << fixed(std::exp(loss.mean()), 2) << ", " << speed << std::endl;
    bar_.show(
        (static_cast<double>(epoch - 1) + share(done + steps)) /
            static_cast<double>(options_.epochs),
        "epoch " + std::to_string(epoch) + " of " + std::to_string(options_.epochs) + ", " + speed);
    return loss;
  }

  Training& training_;
  const Options& options_;
  std::ostream& log_;
  examples::ProgressBar bar_;
  double trained_s_ = 0;
};

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
  while (epoch < options.epochs) {
    course.run_epoch(++epoch, result);
    write_curve(result.curve, options);
    if (!options.checkpoint.empty()) training.save(epoch);
  }
  return result;
}

std::string to_json(const TrainingResult& result, const Options& options) {
  return "{\"trainers\": " + std::to_string(options.trainers) +
         ", \"servers\": " + std::to_string(options.servers) + ", \"optimizer\": \"" +
         options.optimizer + "\", \"words\": " + std::to_string(result.words) +
         ", \"words_per_s\": " + fixed(result.words_per_s, 1) +
         ", \"unigram_perplexity\": " + fixed(result.curve.unigram_perplexity, 3) +
         ", \"valid_perplexity\": " + fixed(result.valid_perplexity, 3) + "}";
}

}  // namespace ps_rnn
