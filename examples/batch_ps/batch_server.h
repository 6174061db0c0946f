#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "model.h"
#include "sinew/examples/common/history_file.h"
#include "sinew/rpc/batcher.h"
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
/// step along their mean, and all get the new one. Thread-safe: several handlers run at once.
class BatchServer {
 public:
  /// `history`: where it writes whose gradients are in the model; empty: nowhere.
  BatchServer(std::size_t trainers, double lr, std::int64_t seed,
              const std::filesystem::path& history = {});
  ~BatchServer();

  /// Copies of the parameters.
  Parameters parameters() const;
  /// Adds to the batch. The future completes when the batch is full, and holds no thread until
  /// then: a server with one thread serves any number of trainers. Throws std::invalid_argument for
  /// gradients that do not fit.
  sinew::Future<Parameters> update(const Gradients& gradients);
  /// So many are left, at least one: a step that waits for the others only is made now.
  void set_trainers(std::size_t trainers);
  /// Steps so far.
  std::int64_t steps() const;

 private:
  std::vector<Parameters> step(const std::vector<Gradients>& gradients);
  Parameters copy_locked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  Parameters parameters_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<torch::optim::SGD> optimizer_ ABSL_GUARDED_BY(mutex_);
  std::int64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
  examples::HistoryFile history_;
  // The last member: its batches use the others.
  sinew::Batcher<Gradients, Parameters> batcher_;
};

}  // namespace batch_ps

SINEW_STRUCT(batch_ps::Gradients, id, values);
SINEW_METHOD(batch_ps::BatchServer::parameters, batch_ps::BatchServer::update);
