#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model.h"
#include "sinew/examples/common/history_file.h"
#include "sinew/sinew.h"

namespace torch::optim {
class SGD;
}

namespace batch_ps {

/// In histories.
constexpr const char* kServerName = "worker0";
constexpr const char* kModelName = "model";

/// Of one trainer, for one step.
struct Gradients {
  /// Which ones, for histories: no others have it.
  std::string id;
  Parameters values;
};

/// Holds the model. Trainers send their gradients; when all that are left have, the model makes one
/// step along their mean, and all get the new one. Is called by one at a time: kTurns.
class BatchServer {
 public:
  /// `history`: where it writes whose gradients are in the model; empty: nowhere.
  BatchServer(double lr, std::int64_t seed, const std::string& history);
  ~BatchServer();

  /// Copies of the parameters.
  Parameters parameters() const;
  /// Adds to the batch. The future completes when the batch is full, and holds no thread until
  /// then: a server with one thread serves any number of trainers. Throws std::invalid_argument for
  /// gradients that do not fit.
  sinew::Future<Parameters> update(const Gradients& gradients);
  /// So many are left. A step that waits for the others only is made now.
  void set_trainers(std::size_t trainers);
  /// Steps so far.
  std::int64_t steps() const { return steps_; }

 private:
  struct Pending {
    Gradients gradients;
    sinew::Promise<Parameters> promise;
  };
  void check(const Parameters& values) const;
  void step();

  Parameters parameters_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::size_t trainers_ = 0;
  std::int64_t steps_ = 0;
  std::vector<Pending> batch_;
  examples::HistoryFile history_;
};

/// An update waits for those of others, which must come in meanwhile.
constexpr auto kTurns = sinew::OneAtATime::kGivesUpTurn;

}  // namespace batch_ps

SINEW_STRUCT(batch_ps::Gradients, id, values);
SINEW_SERVICE(batch_ps::BatchServer, (double, std::int64_t, std::string), parameters, update,
              set_trainers, steps);
