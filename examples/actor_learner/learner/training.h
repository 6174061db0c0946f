#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "learner/checkpoint_folder.h"
#include "learner/learner_service.h"
#include "learner/options.h"
#include "learner/sac.h"
#include "sinew/examples/common/progress_bar.h"
#include "sinew/examples/common/training_curve.h"
#include "sinew/optim/publication.h"

namespace actor_learner {

/// How a training ended.
enum class Outcome { kSolved, kNotSolved, kStopped };

/// Learns from what actors push, until the task is solved, and saves all that it needs to go on
/// after it was killed. For one thread at a time, but for stop().
class Training {
 public:
  /// Goes on from the newest checkpoint that is whole, if there is one. Throws std::runtime_error
  /// that names the file when none of them is of use.
  Training(const Options& options, std::ostream& log);

  /// What actors call.
  const std::shared_ptr<LearnerService>& service() const { return service_; }

  /// Publishes there what actors look for, from now on: at the worker that it has, or has now.
  void publish_at(const sinew::Worker& worker);
  /// Of the newest weights.
  std::uint64_t version() const { return version_; }
  const Policy& policy() const { return sac_.policy(); }

  /// Trains; returns when it is over, and has written the curve and a checkpoint. Throws when a
  /// file cannot be written.
  Outcome run();
  /// Has run() return soon. Thread-safe.
  void stop() { stopped_ = true; }
  /// Writes a line to the log. Thread-safe.
  void say(const std::string& line);

 private:
  bool await_next_batch() const;
  void update();
  void publish();
  /// Whether the goal is reached.
  bool evaluate();
  void write_curve() const;
  void save();
  void restore(const CheckpointFolder::Checkpoint& checkpoint);
  void show();

  const Options options_;
  const std::shared_ptr<LearnerService> service_;
  Sac sac_;
  at::Generator random_;
  std::optional<CheckpointFolder> checkpoints_;
  examples::TrainingCurve curve_;
  std::int64_t updates_ = 0;
  sinew::optim::Publication publication_;
  std::atomic<std::uint64_t> version_ = 0;
  std::atomic<bool> stopped_ = false;
  /// At the last evaluation of this run, for the rate.
  std::int64_t updates_told_ = 0;
  std::chrono::steady_clock::time_point told_;

  /// Guards what follows, which other threads use too.
  std::mutex log_mutex_;
  std::ostream& log_;
  examples::ProgressBar bar_;
};

}  // namespace actor_learner
