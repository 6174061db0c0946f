#pragma once

#include <ostream>

#include "options.h"
#include "sinew/examples/common/training_curve.h"
#include "sinew/sinew.h"

namespace ddp_rpc {

/// What all processes must serve.
void add_methods(sinew::MethodTable& methods);

/// Trains with everybody: makes the embedding at the last rank and a trainer at each rank between,
/// and drives them. To be called by rank 0. Writes a line into `log` for each round, and the curve.
/// Throws RpcError when a worker is lost.
examples::TrainingCurve train(const sinew::Worker& worker, int world_size, const Options& options,
                              std::ostream& log);
/// The same in this process.
examples::TrainingCurve train_alone(const Options& options, std::ostream& log);

}  // namespace ddp_rpc
