#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "corpus.h"
#include "model.h"
#include "plan.h"
#include "sinew/examples/common/history_file.h"
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
  /// For the LSTM, see optimizer_options(); the servers' parameters have one that all trainers
  /// share.
  std::string optimizer = "sgd";
  double learning_rate = 1;
  /// See Options::history.
  std::string history;
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

/// Holds an LSTM and reads shares of the text; made and driven by the first trainer. One call at a
/// time.
class Trainer {
 public:
  /// `servers` and its optimizer are shared by all trainers. Throws std::runtime_error for a text
  /// that cannot be read, or is too short for the batch and the number of trainers.
  Trainer(const TrainerSettings& settings, const ServerModel& servers,
          const sinew::optim::DistributedOptimizer& server_optimizer);

  /// Steps of each share in an epoch.
  std::int64_t steps() const { return steps_; }
  /// With an empty memory. Epochs count from 1.
  void begin_epoch(std::int64_t epoch, double learning_rate, const Plan& plan);
  /// Makes the next `steps` steps of this epoch's plan, or what is left of it.
  Loss train(std::int64_t steps);
  /// Makes the rest of the steps of train() after a standby has taken over: the one that failed
  /// again, where it was not applied. Returns the loss of all of them.
  Loss go_on(const ServerModel& servers,
             const sinew::optim::DistributedOptimizer& server_optimizer);
  /// Without dropout, on these shares of the validation text.
  Loss evaluate(const std::vector<std::int64_t>& shares);

  /// Of the LSTM; copies.
  std::vector<at::Tensor> parameters() const;
  void set_parameters(const std::vector<at::Tensor>& values);

  void save(const std::string& folder, const std::string& note);
  /// Returns the note.
  std::string load(const std::string& folder);

  /// Copies the LSTM, and what it remembers, between two rounds, and begins to write that into the
  /// folder.
  void begin_checkpoint(const std::string& folder);
  /// Waits until it is written, and returns its number.
  std::uint64_t finish_checkpoint();
  /// By server: how many steps were in what it had when this trainer heard of it last; empty if it
  /// has made no step since the start or since restore().
  std::vector<std::uint64_t> versions() const { return versions_; }
  /// Goes back to a checkpoint, which was taken at `position`, and on with these servers. `run`
  /// counts how often all have gone back.
  void restore(const ServerModel& servers,
               const sinew::optim::DistributedOptimizer& server_optimizer,
               const std::string& folder, std::uint64_t number, const Position& position,
               std::int64_t run);

 private:
  /// A share of `text`, one column for each of its pieces that are read side by side: {rows,
  /// batch}.
  at::Tensor in_columns(const std::vector<std::int64_t>& text, std::int64_t share) const;
  Loss make_steps();
  void step(std::int64_t number);
  /// `name`: which step of the training it is.
  void step_all(const sinew::autograd::Context& context, const std::string& name);
  at::Tensor loss_of(const at::Tensor& words, const at::Tensor& targets, Hidden& hidden);

  const TrainerSettings settings_;
  const sinew::Worker worker_;
  ServerModel servers_;
  sinew::optim::DistributedOptimizer server_optimizer_;
  torch::nn::LSTM lstm_;
  sinew::optim::DistributedOptimizer lstm_optimizer_;
  const Corpus corpus_;
  std::int64_t steps_ = 0;
  std::int64_t epoch_ = 1;
  // What is to be read, and how many steps of this epoch have been made.
  Plan rest_;
  std::int64_t done_ = 0;
  // Of the round: where it ends, and what its steps have come to so far.
  std::int64_t end_ = 0;
  Loss total_;
  // A step that the servers have not acknowledged, and whether the LSTM has made it.
  std::optional<sinew::optim::PartialStep> failed_;
  bool lstm_is_ahead_ = false;
  examples::HistoryFile history_;
  examples::HistoryFile::Step attempt_;
  std::int64_t attempts_ = 0;
  std::int64_t run_ = 0;
  std::vector<std::uint64_t> versions_;
  // The share that columns_ has.
  std::int64_t share_ = -1;
  at::Tensor columns_;
  Hidden hidden_;
  // In checkpoints, beside the LSTM.
  Hidden kept_hidden_;
  sinew::Future<sinew::optim::Checkpoint> saving_;
};

/// Checkpoints that stay in a folder: that of a server may have failed where a trainer's has not.
constexpr std::size_t kCheckpointsKept = 4;

/// The target of steps in histories, and its owners: a standby that takes a server's place takes
/// the name too.
constexpr const char* kServersInHistory = "servers";
examples::HistoryFile::Versions versions_by_server(const std::vector<std::uint64_t>& versions);

/// What trainers must serve.
void add_trainer_methods(sinew::MethodTable& methods);

}  // namespace ps_rnn

SINEW_STRUCT(ps_rnn::TrainerSettings, number, trainers, model, data, ntoken, limit, batch, bptt,
             max_steps, scores_to_trainer, optimizer, learning_rate, history);
SINEW_STRUCT(ps_rnn::Loss, sum, words);
SINEW_STRUCT(ps_rnn::Piece, share, first, last);
SINEW_STRUCT(ps_rnn::Position, epoch, plan, done);
SINEW_SERVICE(ps_rnn::Trainer,
              (ps_rnn::TrainerSettings, ps_rnn::ServerModel, sinew::optim::DistributedOptimizer),
              steps, begin_epoch, train, go_on, evaluate, parameters, set_parameters, save, load,
              begin_checkpoint, finish_checkpoint, versions, restore);
