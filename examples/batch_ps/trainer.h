#pragma once

#include <cstdint>
#include <string>

#include "batch_server.h"
#include "sinew/examples/common/spirals.h"
#include "sinew/sinew.h"

namespace batch_ps {

/// Computes gradients on data of its own. Lives at a trainer's process; made and called by the
/// server's. One call at a time.
class Trainer {
 public:
  /// `number` says which data: each trainer draws others. `history`: where it writes which
  /// gradients it has sent, and what became of them; empty: nowhere.
  Trainer(std::int64_t number, std::int64_t batch, std::int64_t seed, const std::string& history);
  /// Returns the mean loss.
  double train(const sinew::RRef<BatchServer>& server, std::int64_t steps);

 private:
  const std::string name_;
  const std::int64_t batch_;
  std::int64_t next_seed_;
  std::int64_t sent_ = 0;
  examples::HistoryFile history_;
};

}  // namespace batch_ps

SINEW_SERVICE(batch_ps::Trainer, (std::int64_t, std::int64_t, std::int64_t, std::string), train);
