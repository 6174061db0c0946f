#pragma once

#include <memory>

#include "sinew/rpc/calls/layers.h"

namespace sinew::internal {

std::shared_ptr<Extension> make_groups(WorkerServices& services);

/// Workers of programs that include this serve the store of their job where they are its rank 0.
inline const bool kHasGroups = add_layer(Layer::kGroups, &make_groups);

}  // namespace sinew::internal
