#pragma once

#include <cstdint>

#include "batch_server.h"
#include "sinew/examples/common/spirals.h"
#include "sinew/sinew.h"

namespace batch_ps {

/// Computes gradients on data of its own. Lives at a trainer's process; made and called by the
/// server's. One call at a time.
class Trainer {
 public:
  /// `number` says which data: each trainer draws others.
  Trainer(std::int64_t number, std::int64_t batch, std::int64_t seed);
  /// Returns the mean loss.
  double train(const sinew::RRef<BatchServer>& server, std::int64_t steps);

 private:
  const std::int64_t batch_;
  std::int64_t next_seed_;
};

}  // namespace batch_ps

SINEW_SERVICE(batch_ps::Trainer, (std::int64_t, std::int64_t, std::int64_t), train);
