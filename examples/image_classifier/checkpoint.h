#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "metrics.h"
#include "optimizer.h"
#include "sinew/examples/common/training_curve.h"
#include "sinew/groups/process_group.h"

namespace torch::nn {
class Module;
}

namespace image_classifier {

/// How far a training has come.
struct Progress {
  /// Finished ones, and rounds of the next one.
  std::int64_t epoch = 0;
  std::int64_t round = 0;
  /// Of these rounds, over all ranks.
  Metrics train;
  double best_top = 0;
  std::vector<examples::TrainingCurve::Point> curve;
};

/// A folder with the state of a training: `latest.pt`, and `best.pt` for the epoch that did best on
/// the test pictures. Rank 0 writes it, each file as a whole or not at all.
class CheckpointFolder {
 public:
  /// `settings` are lines of what must not change when a training goes on.
  CheckpointFolder(std::filesystem::path folder, std::string settings);

  /// To be called by rank 0. `optimizer` is what Sgd::save() has returned. Throws
  /// std::runtime_error with the file's name and the reason.
  void save(const std::string& name, const torch::nn::Module& module, const std::string& optimizer,
            const Progress& progress) const;

  /// To be called by all ranks: those of other hosts need no such folder. Fills module and
  /// optimizer with what `latest.pt` of rank 0 has. Nothing: there is no such file. Throws
  /// std::runtime_error with the file's name for a damaged one, and for other settings.
  std::optional<Progress> load(torch::nn::Module& module, Sgd& optimizer,
                               const sinew::ProcessGroup& group) const;

 private:
  const std::filesystem::path folder_;
  const std::string settings_;
};

}  // namespace image_classifier
