#pragma once

#include <memory>

#include "sinew/autograd/internal/layer.h"
#include "sinew/rpc/calls/layers.h"
#include "sinew/rref/internal/layer.h"

namespace sinew::internal {

std::shared_ptr<Extension> make_optim(WorkerServices& services);

/// Workers of programs that include this have optimizers.
inline const bool kHasOptim = add_layer(Layer::kOptim, &make_optim);

}  // namespace sinew::internal
