#include "training.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "ATen/ATen.h"
#include "sinew/examples/common/files.h"

namespace ps_rnn {
namespace {

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

bool is_loss(const sinew::RpcError& error) {
  return error.code() == sinew::ErrorCode::kUnavailable;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
  model.device = options.device;
  // The other optimizers change all rows in each step, also those that were not looked up.
  model.sparse_embedding = options.optimizer == "sgd" || options.optimizer == "adagrad";
  return model;
}

Training::Training(const sinew::Worker& worker, const Team& team, const Options& options,
                   std::int64_t ntoken)
    : worker_(worker),
      options_(options),
      history_(options.history, worker.name(), kServersInHistory) {
  settings_.trainers = static_cast<std::int64_t>(team.trainers.size());
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
  settings_.history = options.history.string();

  std::vector<Standbys::Pair> pairs;
  for (std::size_t i = 0; i < team.servers.size(); ++i) {
    server_names_.push_back(team.servers[i].info().name);
    if (i < team.standbys.size()) {
      pairs.push_back({server_names_.back(), team.standbys[i].info().name});
    }
  }
  begun_with_.resize(team.servers.size());
  served_.model = ServerModel::make(team.servers, settings_.model);
  const auto optimizer = optimizer_options(settings_.optimizer, settings_.learning_rate);
  served_.optimizer = DistributedOptimizer(worker, served_.model.parameters(), optimizer);
  standbys_.emplace(worker, pairs, settings_.model, optimizer,
                    std::chrono::seconds(options.server_wait));
  standbys_->await(served_);
  TrainerSettings settings = settings_;
  for (const sinew::Peer& trainer : team.trainers) {
    trainers_.push_back(
        trainer.with(patient()).remote<Trainer>(settings, served_.model, served_.optimizer));
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
  with_standbys([&] { served_.optimizer.set_learning_rate(lr); });
  for (std::size_t i = 0; i < trainers_.size(); ++i) {
    trainers_[i].call<&Trainer::begin_epoch>(epoch, lr, plans_[i]);
  }
  epoch_ = epoch;
  done_ = 0;
}

template <class Work>
std::invoke_result_t<const Work&> Training::with_standbys(const Work& work) {
  for (int attempt = 0;; ++attempt) {
    try {
      all_of(parts_);
      return work();
    } catch (const sinew::RpcError& error) {
      const auto start = std::chrono::steady_clock::now();
      if (!is_loss(error) || attempt == kMostRecoveriesInVain ||
          !standbys_->take_over(served_, epoch_, done_)) {
        throw;
      }
      // Of another owner, which may have no file of it.
      writing_.reset();
      parts_.clear();
      for (const auto& trainer : trainers_) {
        parts_.push_back(
            trainer.with(patient()).async<&Trainer::go_on>(served_.model, served_.optimizer));
      }
      ++failovers_.count;
      failovers_.seconds += seconds_since(start);
    }
  }
}

Loss Training::round(std::int64_t steps) {
  standbys_->look(served_);
  with_standbys([&] { served_.model.begin_round(epoch_, done_); });
  parts_.clear();
  for (const auto& trainer : trainers_) {
    parts_.push_back(trainer.with(patient()).async<&Trainer::train>(steps));
  }
  const std::vector<Loss> losses = with_standbys([&] { return all_of(parts_); });
  Loss total;
  for (const Loss& part : losses) total += part;
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
  return with_standbys([&] { return evaluate_once(); });
}

Loss Training::evaluate_once() const {
  served_.model.train(false);
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
  served_.model.train(true);
  return total;
}

// ---- Losses of processes.

void Training::begin_checkpoint() {
  if (options_.checkpoint.empty()) return;
  with_standbys([&] { begin_checkpoint_once(); });
}

void Training::begin_checkpoint_once() {
  finish_checkpoint_once();
  sinew::optim::SaveOptions how;
  how.kept = kCheckpointsKept;
  Checkpoint next{{epoch_, {}, done_}, trainers_, plans_, {}, {}, begun_with_};
  for (const auto& trainer : trainers_) {
    trainer.call<&Trainer::begin_checkpoint>(folder_of(trainer));
    next.parts.push_back(trainer.with(patient()).async<&Trainer::finish_checkpoint>());
    // Nobody makes a step now, so the greatest one is the server's.
    const auto seen = trainer.call<&Trainer::versions>();
    for (std::size_t i = 0; i < seen.size(); ++i) {
      next.versions[i] = std::max(next.versions[i], seen[i]);
    }
  }
  next.servers = served_.optimizer.save_async("now/servers", how, patient());
  writing_ = std::move(next);
}

void Training::finish_checkpoint() {
  with_standbys([&] { finish_checkpoint_once(); });
}

void Training::finish_checkpoint_once() {
  if (!writing_) return;
  all_of(writing_->parts);
  writing_->servers.wait();
  written_ = std::exchange(writing_, std::nullopt);
}

void Training::recover(const sinew::RpcError& error) {
  if (!written_ || !is_loss(error) || ++recoveries_in_vain_ > kMostRecoveriesInVain) throw error;
  const auto start = std::chrono::steady_clock::now();
  writing_.reset();
  standbys_->forget();
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
  failovers_.seconds += seconds_since(start);
}

void Training::find_servers() {
  for (std::size_t i = 0; i < server_names_.size(); ++i) {
    if (served_.model.embedding[i].module_rref().peer().alive()) continue;
    const auto ready = worker_.find<std::string>(server_names_[i] + "/" + kReady,
                                                 std::chrono::seconds(options_.server_wait));
    served_.model.make_at(ready.peer(), static_cast<std::int64_t>(i), settings_.model);
  }
}

// Trainers that are lost have left their steps since the checkpoint to the others, and what they
// have not read yet.
void Training::restore() {
  const Checkpoint& from = *written_;
  parts_.clear();
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
  served_.optimizer = served_.optimizer.rebind(
      served_.model.parameters(), optimizer_options(settings_.optimizer, settings_.learning_rate));
  served_.optimizer.load("now/servers", from.servers.wait().number, patient());
  served_.model.train(true);
  begun_with_ = from.versions;
  history_.add_load(++run_, versions_by_server(begun_with_));
  for (std::size_t i = 0; i < trainers_.size(); ++i) {
    trainers_[i].with(patient()).call<&Trainer::restore>(
        served_.model, served_.optimizer, folder_of(trainers_[i]), numbers[i],
        Position{from.position.epoch, plans_[i], from.position.done}, run_);
  }
  if (epoch_ == from.position.epoch) failovers_.lost_steps += done_ - from.position.done;
  epoch_ = from.position.epoch;
  done_ = from.position.done;
}

// The note says which epoch a part is of, and `latest` which one all parts have, but those of
// trainers that were lost: "3 without 1".
void Training::save(std::int64_t epoch) {
  const std::string folder = checkpoint_folder(epoch);
  with_standbys([&] { served_.optimizer.save(folder + "/servers", note_of(epoch), patient()); });
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
  std::vector<std::string> notes = {served_.optimizer.load(folder + "/servers", patient()).note};
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

}  // namespace ps_rnn
