#pragma once

#include <ostream>
#include <vector>

#include "options.h"
#include "sinew/examples/common/labelled_images.h"
#include "sinew/examples/common/training_curve.h"
#include "sinew/groups/process_group.h"

namespace mnist_sgd {

struct TrainingResult {
  /// Of the last epoch, over all ranks.
  double test_accuracy = 0;
  examples::TrainingCurve curve;
  /// Copies of what all ranks have in the end.
  std::vector<at::Tensor> parameters;
  /// A rank's process was asked to end before the training was over.
  bool stopped = false;
};

/// Puts the mean over all ranks in place of each gradient that is there.
void average_gradients(const std::vector<at::Tensor>& parameters, const sinew::ProcessGroup& group);

/// Trains on this rank's part of `data`. All ranks call it, with the same options. Writes a line
/// with this rank's mean loss into `log` after each epoch; rank 0 tells the accuracy too, and
/// writes the curve. Throws std::invalid_argument for pictures that are not 1 x 28 x 28, or a batch
/// with less pictures than ranks.
TrainingResult train(const sinew::ProcessGroup& group, const examples::ImageFolder& data,
                     const Options& options, std::ostream& log);

}  // namespace mnist_sgd
