#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "loss_curve.h"
#include "options.h"
#include "sinew/sinew.h"
#include "trainer.h"

namespace ps_rnn {

/// The options of an optimizer by the name that --optimizer knows. Throws std::invalid_argument.
sinew::optim::Options optimizer_options(const std::string& name, double lr);
/// How the text and the flags set the model.
ModelSettings model_settings(const Options& options, std::int64_t ntoken);

/// A model that lies on servers and trainers, and how it is trained: the first trainer has one of
/// these. Not thread-safe. What waits for others throws RpcError.
class Training {
 public:
  /// Makes the parts of the model at `servers`, and a Trainer at each of `trainers`. `ntoken` is
  /// how many tokens the text has.
  Training(const sinew::Worker& worker, const std::vector<sinew::Peer>& trainers,
           const std::vector<sinew::Peer>& servers, const Options& options, std::int64_t ntoken);

  /// Steps of an epoch, of each trainer.
  std::int64_t steps() const { return steps_; }
  void begin_epoch(std::int64_t epoch);
  /// Lets all trainers make so many steps, and averages their LSTMs.
  Loss round(std::int64_t steps);
  Loss evaluate();

  /// After an epoch. Two checkpoints are kept in turn, so that one is whole at any time.
  void save(std::int64_t epoch);
  /// Restores the last epoch that all parts were saved after, and returns it. Throws
  /// std::runtime_error when there is none.
  std::int64_t load();

  const ServerModel& servers() const { return servers_; }
  const std::vector<sinew::RRef<Trainer>>& trainers() const { return trainers_; }

 private:
  void average();

  const sinew::Worker worker_;
  const Options options_;
  ServerModel servers_;
  sinew::optim::DistributedOptimizer server_optimizer_;
  std::vector<sinew::RRef<Trainer>> trainers_;
  std::int64_t steps_ = 0;
};

struct TrainingResult {
  LossCurve curve;
  /// Of the last epoch.
  double valid_perplexity = 0;
  /// Of all trainers, while they trained.
  std::int64_t words = 0;
  double words_per_s = 0;
};

/// Trains for `options.epochs`, with a line in `log` for each round and epoch, the curve and the
/// checkpoints.
TrainingResult train(const sinew::Worker& worker, const std::vector<sinew::Peer>& trainers,
                     const std::vector<sinew::Peer>& servers, const Options& options,
                     std::ostream& log);

/// One JSON object without line breaks.
std::string to_json(const TrainingResult& result, const Options& options);

}  // namespace ps_rnn
