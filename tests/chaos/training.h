#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sinew/sinew.h"
#include "sinew/tests/chaos/chaos_methods.h"
#include "sinew/tests/process/churn_life.h"
#include "sinew/tests/process/churn_tally.h"

namespace chaos {

struct TrainingOptions {
  /// The workers that have the models.
  std::vector<std::string> servers;
  /// An existing folder, for what the trainer itself must not forget.
  std::string folder;
};

/// Steps the models of the parameter servers, saves them now and then, and goes back to what was
/// saved when somebody was lost. Steps and loads go to the history, and progress is told:
/// "event trained STEP". There is one of it in the job.
class Training final : public churn::Activity {
 public:
  Training(sinew::Worker worker, TrainingOptions options, churn::Tally& tally);
  ~Training() override;
  /// Writes to the history what is in the models.
  void conclude() override;

 private:
  /// Steps of a run, each of which takes an element of the models that no other run takes: enough
  /// for some hours of many losses.
  static constexpr std::int64_t kMostSteps = 64;

  void stop();
  void train();
  /// Finds the models as they were when they were saved last.
  void begin_run();
  void rebind();
  void step();
  sinew::optim::StepReport apply(const sinew::autograd::Context& context);
  void save();
  void finish_save();
  std::string note() const;
  void read_note(const std::string& note);
  std::string file(const std::string& name) const { return options_.folder + "/" + name; }
  /// One that no run of this folder had.
  std::int64_t next_run() const;
  void read_models();

  const sinew::Worker worker_;
  const TrainingOptions options_;
  churn::Tally& tally_;
  std::vector<sinew::RRef<Model>> models_;
  sinew::optim::DistributedOptimizer optimizer_;
  std::optional<sinew::Future<sinew::optim::Checkpoint>> saving_;
  std::int64_t run_ = 0;
  // Attempts of this run so far, and the step that is to be made next.
  std::int64_t attempts_ = 0;
  std::int64_t next_step_ = 0;
  Versions versions_;
  // The models are what the versions say.
  bool is_clean_ = false;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace chaos
