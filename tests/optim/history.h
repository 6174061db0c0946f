#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sinew/sinew.h"
#include "sinew/tests/optim/table.h"

// Steps that are acknowledged while owners are killed and come back from a checkpoint, and whether
// they are there in the end.
namespace testoptim {

/// A step that all owners have said they have applied.
struct Acknowledged {
  /// Which step of the training.
  std::int64_t step = 0;
  /// A run begins with a load, and the next one with the next.
  std::int64_t run = 0;
  /// OwnerStep::version, by owner.
  std::vector<std::int64_t> versions;
};

/// What is wrong with a training of `steps` steps, numbered from 0; empty: nothing. A step is lost
/// when a later run has begun with an earlier version, and must have been made again.
/// `loaded[run]` is the version that a run has begun with.
std::string check_history(const std::vector<Acknowledged>& history,
                          const std::vector<std::int64_t>& loaded, std::int64_t steps);

/// Makes steps at a trainer, and remembers those that were acknowledged. One call at a time.
class Picker {
 public:
  /// Steps `first` to `first + count - 1`, each of which adds -1 to one element of each table. Says
  /// so at worker0 between the backward pass and the step, and after it. Called once more with the
  /// same run and steps, after a standby has taken over, it makes what is left of them, the one
  /// that failed first: again, where it was begun.
  void pick(const std::vector<sinew::RRef<Table>>& tables,
            const sinew::optim::DistributedOptimizer& optimizer, std::int64_t run,
            std::int64_t first, std::int64_t count);
  std::vector<Acknowledged> history() const { return history_; }

 private:
  void step(const std::vector<sinew::RRef<Table>>& tables,
            const sinew::optim::DistributedOptimizer& optimizer);

  std::vector<Acknowledged> history_;
  std::int64_t run_ = 0;
  std::int64_t next_ = 0;
  std::int64_t end_ = 0;
  std::optional<sinew::optim::PartialStep> failed_;
};

/// A picker has come to where something may happen. At worker0, which sets what does.
void reached();
void on_reached(std::function<void()> happens);

}  // namespace testoptim

SINEW_STRUCT(testoptim::Acknowledged, step, run, versions);
SINEW_SERVICE(testoptim::Picker, (), pick, history);
SINEW_METHOD(testoptim::reached);
