#pragma once

/// Everything that most programs need: typed remote calls, remote references, distributed autograd
/// and optimizers.

#include "sinew/autograd/context.h"
#include "sinew/optim/distributed_optimizer.h"
#include "sinew/optim/remote_module.h"
#include "sinew/rpc/rpc.h"
#include "sinew/rref/names.h"
#include "sinew/rref/remote.h"
#include "sinew/rref/rref.h"

namespace sinew {

/// Starts a worker with all layers of Sinew and joins the job; see Worker::start for what it throws
/// and when it returns.
Worker init_rpc(WorkerOptions options);

/// The common case: the meeting place, rank and world size come from the environment (MASTER_ADDR,
/// MASTER_PORT, RANK, WORLD_SIZE, or what Slurm and MPI set; see docs/launch.md).
Worker init_rpc(std::string name, MethodTable methods);

}  // namespace sinew
