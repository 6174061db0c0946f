#pragma once

/// Everything that most programs need: typed remote calls, remote references, distributed autograd
/// and optimizers, launch_place() and StopSignal. Workers of a program that includes it have all
/// layers of Sinew. Apart, since not all need them: sinew/groups/process_group.h, sinew/parallel/
/// and sinew/launch/spawn.h.

#include "sinew/autograd/context.h"
#include "sinew/groups/store.h"
#include "sinew/optim/distributed_optimizer.h"
#include "sinew/optim/remote_module.h"
#include "sinew/rpc/base/launch_place.h"
#include "sinew/rpc/base/stop_signal.h"
#include "sinew/rpc/base/trace.h"
#include "sinew/rpc/rpc.h"
#include "sinew/rref/names.h"
#include "sinew/rref/remote.h"
#include "sinew/rref/rref.h"
#include "sinew/rref/team.h"
#include "sinew/streams/stream.h"
