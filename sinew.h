#pragma once

/// Everything that most programs need: typed remote calls, remote references, distributed autograd
/// and optimizers. Workers of a program that includes it have all layers of Sinew.

#include "sinew/autograd/context.h"
#include "sinew/groups/internal/layer.h"
#include "sinew/optim/distributed_optimizer.h"
#include "sinew/optim/remote_module.h"
#include "sinew/rpc/rpc.h"
#include "sinew/rref/names.h"
#include "sinew/rref/remote.h"
#include "sinew/rref/rref.h"
