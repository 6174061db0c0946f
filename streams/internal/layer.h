#pragma once

#include <memory>

#include "sinew/rpc/calls/layers.h"

namespace sinew::internal {

std::shared_ptr<Extension> make_streams(WorkerServices& services);

/// Workers of programs that include this have streams.
inline const bool kHasStreams = add_layer(Layer::kStreams, &make_streams);

}  // namespace sinew::internal
