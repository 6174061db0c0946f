#pragma once

#include <ostream>
#include <string>

#include "data/picture_set.h"
#include "metrics.h"
#include "options.h"
#include "sinew/examples/common/training_curve.h"
#include "sinew/groups/process_group.h"

namespace image_classifier {

struct TrainingResult {
  /// On the test pictures after the last epoch, over all ranks.
  Metrics test;
  examples::TrainingCurve curve;
  /// Copies of what all ranks have in the end, running means and variances included.
  std::vector<at::Tensor> state;
  /// A rank's process was asked to end before the training was over.
  bool stopped = false;
};

/// "[init] == local rank: 1, global rank: 5 ==": what each rank says first.
std::string init_text(int local_rank, int rank);

/// Trains, from the checkpoint on if `options.resume` says so, or only evaluates. All ranks call
/// it, with the same options and data. Rank 0 writes the log, the curve and the checkpoints. Throws
/// std::runtime_error for checkpoints, weights and pictures that cannot be used, and
/// std::invalid_argument for options that do not fit the data or the number of ranks.
TrainingResult train(const sinew::ProcessGroup& group, const DataSets& data, const Options& options,
                     std::ostream& log);

}  // namespace image_classifier
