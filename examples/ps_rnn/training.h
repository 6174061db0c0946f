#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "options.h"
#include "sinew/sinew.h"
#include "standbys.h"
#include "trainer.h"

namespace ps_rnn {

/// The options of an optimizer by the name that --optimizer knows. Throws std::invalid_argument.
sinew::optim::Options optimizer_options(const std::string& name, double lr);
/// How the text and the flags set the model.
ModelSettings model_settings(const Options& options, std::int64_t ntoken);

/// What losses of processes have cost.
struct Failovers {
  std::int64_t count = 0;
  /// Steps of a trainer that were made again.
  std::int64_t lost_steps = 0;
  /// From when the first trainer noticed until training could go on.
  double seconds = 0;
};

/// The processes of a job.
struct Team {
  std::vector<sinew::Peer> trainers;
  std::vector<sinew::Peer> servers;
  /// As many as there are servers, or none.
  std::vector<sinew::Peer> standbys = {};
};

/// A model that lies on servers and trainers, and how it is trained: the first trainer has one of
/// these. Not thread-safe. A server that has a standby is replaced by it when it is lost, and
/// whatever was being done goes on. Otherwise what waits for others throws RpcError; then recover()
/// brings it back to the last checkpoint.
class Training {
 public:
  /// Makes the parts of the model at the servers, and a Trainer at each of the trainers. `ntoken`
  /// is how many tokens the text has.
  Training(const sinew::Worker& worker, const Team& team, const Options& options,
           std::int64_t ntoken);

  /// Steps of this epoch, of the trainer that has most.
  std::int64_t steps() const;
  std::int64_t epoch() const { return epoch_; }
  /// Steps of this epoch that each trainer has made that has so many.
  std::int64_t done() const { return done_; }
  /// Shares of trainers that are lost are spread over the others.
  void begin_epoch(std::int64_t epoch);
  /// Lets all trainers make so many steps, and averages their LSTMs.
  Loss round(std::int64_t steps);
  Loss evaluate();

  /// Between two rounds. Waits until the checkpoint before is written, and has all begin to write
  /// the next one, which they do while they go on.
  void begin_checkpoint();
  /// Waits until that is written too. From then on recover() goes back no further.
  void finish_checkpoint();
  /// After something threw `error`: waits until servers that are lost have been started again,
  /// under their names, and goes on without trainers that are lost. All go back to the last
  /// checkpoint that is written. Throws `error` unless somebody was lost and there is one.
  void recover(const sinew::RpcError& error);
  const Failovers& failovers() const { return failovers_; }
  /// Servers that can be replaced at once.
  std::int64_t standbys() const { return standbys_->count(); }

  /// After an epoch. Two checkpoints are kept in turn, so that one is whole at any time.
  void save(std::int64_t epoch);
  /// Restores the last epoch that all parts were saved after, and returns it. Throws
  /// std::runtime_error when there is none.
  std::int64_t load();

  const ServerModel& servers() const { return served_.model; }
  const std::vector<sinew::RRef<Trainer>>& trainers() const { return trainers_; }

 private:
  /// A checkpoint that is being written, or is.
  struct Checkpoint {
    Position position;
    std::vector<sinew::RRef<Trainer>> trainers;
    std::vector<Plan> plans;
    sinew::Future<sinew::optim::Checkpoint> servers;
    std::vector<sinew::Future<std::uint64_t>> parts;
    /// By server: the steps that are in it.
    std::vector<std::uint64_t> versions;
  };

  /// Does `work`, again when a standby has taken over meanwhile, and the trainers with it.
  template <class Work>
  std::invoke_result_t<const Work&> with_standbys(const Work& work);
  Loss evaluate_once() const;
  void begin_checkpoint_once();
  void finish_checkpoint_once();
  void average();
  void find_servers();
  void restore();
  /// Whose share that is in the first place.
  std::int64_t number_of(const sinew::RRef<Trainer>& trainer) const;
  /// Steps of trainers that are lost go to the others.
  void spread(const Plan& orphaned);
  std::string folder_of(const sinew::RRef<Trainer>& trainer) const;

  const sinew::Worker worker_;
  const Options options_;
  TrainerSettings settings_;
  std::vector<std::string> server_names_;
  Served served_;
  // Those that live, and what each of them reads in this epoch.
  std::vector<sinew::RRef<Trainer>> trainers_;
  std::vector<Plan> plans_;
  std::vector<sinew::RRef<Trainer>> all_trainers_;
  // What these do in the round that is under way.
  std::vector<sinew::Future<Loss>> parts_;
  std::int64_t share_steps_ = 0;
  std::int64_t epoch_ = 0;
  std::int64_t done_ = 0;
  std::optional<Checkpoint> writing_;
  std::optional<Checkpoint> written_;
  Failovers failovers_;
  examples::HistoryFile history_;
  // How often all have gone back, and by server the steps that were in what they went back to.
  std::int64_t run_ = 0;
  std::vector<std::uint64_t> begun_with_;
  // Holds threads that use the others, until it goes.
  std::optional<Standbys> standbys_;
  // Since a round was made.
  int recoveries_in_vain_ = 0;
};

}  // namespace ps_rnn
