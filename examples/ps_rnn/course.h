#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "loss_curve.h"
#include "options.h"
#include "sinew/sinew.h"
#include "training.h"

namespace ps_rnn {

struct TrainingResult {
  LossCurve curve;
  /// Of the last epoch.
  double valid_perplexity = 0;
  /// Of all trainers, while they trained.
  std::int64_t words = 0;
  double words_per_s = 0;
  Failovers failovers;
  /// The process was asked to end: what was trained after the last epoch is in no checkpoint that
  /// --resume goes on from.
  bool stopped = false;
};

/// Trains for `options.epochs`, with a line in `log` for each round and epoch, the curve and the
/// checkpoints.
TrainingResult train(const sinew::Worker& worker, const Team& team, const Options& options,
                     std::ostream& log);

/// One JSON object without line breaks.
std::string to_json(const TrainingResult& result, const Options& options);

}  // namespace ps_rnn
