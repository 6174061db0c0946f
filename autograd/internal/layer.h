#pragma once

#include <memory>

#include "sinew/rpc/calls/layers.h"

namespace sinew::internal {

std::shared_ptr<Extension> make_autograd(WorkerServices& services);

/// Workers of programs that include this take part in backward passes.
inline const bool kHasAutograd = add_layer(Layer::kAutograd, &make_autograd);

}  // namespace sinew::internal
