#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "model.h"
#include "sinew/sinew.h"

namespace ps_rnn {

/// What a trainer is told when it is made.
struct TrainerSettings {
  std::int64_t number = 0;
  std::int64_t trainers = 1;
  ModelSettings model;
  /// The text, and how it is read (see CorpusOptions).
  std::string data;
  std::int64_t ntoken = 0;
  std::int64_t limit = 0;
  std::int64_t batch = 20;
  std::int64_t bptt = 35;
  /// Of an epoch; 0: all that the text has.
  std::int64_t max_steps = 0;
  bool scores_to_trainer = false;
  /// For the LSTM; the servers' parameters have one that all trainers share.
  sinew::optim::Options optimizer;
};

/// Sum of the cross entropy of `words` words.
struct Loss {
  double sum = 0;
  std::int64_t words = 0;

  double mean() const { return words == 0 ? 0 : sum / static_cast<double>(words); }
  Loss& operator+=(const Loss& other) {
    sum += other.sum;
    words += other.words;
    return *this;
  }
};

/// Holds an LSTM and a share of the text; made and driven by the first trainer. One call at a time.
class Trainer {
 public:
  /// `servers` and its optimizer are shared by all trainers. Throws std::runtime_error for a text
  /// that cannot be read, or is too short for the batch and the number of trainers.
  Trainer(const TrainerSettings& settings, const ServerModel& servers,
          const sinew::optim::DistributedOptimizer& server_optimizer);

  /// Steps of an epoch.
  std::int64_t steps() const { return steps_; }
  /// Back to the start of the text, with an empty memory. Epochs count from 1.
  void begin_epoch(std::int64_t epoch, double learning_rate);
  /// Makes the next `steps` steps of this epoch, or what is left of it.
  Loss train(std::int64_t steps);
  /// Without dropout, on this trainer's share of the validation text.
  Loss evaluate();

  /// Of the LSTM; copies.
  std::vector<at::Tensor> parameters() const;
  void set_parameters(const std::vector<at::Tensor>& values);

  void save(const std::string& folder, const std::string& note);
  /// Returns the note.
  std::string load(const std::string& folder);

 private:
  /// One column of `text` per piece: {rows, batch}.
  at::Tensor in_columns(const std::vector<std::int64_t>& text) const;
  at::Tensor loss_of(const at::Tensor& words, const at::Tensor& targets, Hidden& hidden);

  const TrainerSettings settings_;
  const sinew::Worker worker_;
  const ServerModel servers_;
  const sinew::optim::DistributedOptimizer server_optimizer_;
  torch::nn::LSTM lstm_;
  sinew::optim::DistributedOptimizer lstm_optimizer_;
  at::Tensor train_;
  at::Tensor valid_;
  std::int64_t steps_ = 0;
  std::int64_t next_step_ = 0;
  Hidden hidden_;
};

/// What trainers must serve.
void add_trainer_methods(sinew::MethodTable& methods);

}  // namespace ps_rnn

SINEW_STRUCT(ps_rnn::TrainerSettings, number, trainers, model, data, ntoken, limit, batch, bptt,
             max_steps, scores_to_trainer, optimizer);
SINEW_STRUCT(ps_rnn::Loss, sum, words);
SINEW_SERVICE(ps_rnn::Trainer,
              (ps_rnn::TrainerSettings, ps_rnn::ServerModel, sinew::optim::DistributedOptimizer),
              steps, begin_epoch, train, evaluate, parameters, set_parameters, save, load);
