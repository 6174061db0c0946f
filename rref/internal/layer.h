#pragma once

#include <memory>

#include "sinew/rpc/calls/layers.h"

namespace sinew::internal {

std::shared_ptr<Extension> make_references(WorkerServices& services);
std::shared_ptr<Extension> make_names(WorkerServices& services);

/// Workers of programs that include this keep references, and find objects by name.
inline const bool kHasReferences = add_layer(Layer::kReferences, &make_references);
inline const bool kHasNames = add_layer(Layer::kNames, &make_names);

}  // namespace sinew::internal
