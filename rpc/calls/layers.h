#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "sinew/rpc/calls/extension.h"

namespace sinew::internal {

/// The layers above calls, in the order in which a worker makes them.
enum class Layer { kReferences, kNames, kStreams, kAutograd, kOptim, kGroups };
using MakeLayer = std::shared_ptr<Extension> (*)(WorkerServices& services);

/// Workers that start from now on have this layer. Each layer calls it from its public headers: a
/// program links the layers whose headers it includes, and its workers have these. Returns true.
/// Thread-safe.
bool add_layer(Layer layer, MakeLayer make);
std::vector<MakeLayer> added_layers();

/// The layer of that name of a worker. Throws kFailedPrecondition when the worker started without.
Extension& require_layer(const WorkerServices& services, std::string_view name);

template <class Manager>
std::shared_ptr<Manager> require_layer(const WorkerServices& services, std::string_view name) {
  return static_cast<Manager&>(require_layer(services, name)).shared_from_this();
}

}  // namespace sinew::internal
