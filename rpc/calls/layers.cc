#include "sinew/rpc/calls/layers.h"

#include <array>
#include <atomic>
#include <cstddef>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

// Constant-initialised: layers are added before main().
std::array<std::atomic<MakeLayer>, static_cast<std::size_t>(Layer::kGroups) + 1> layers;

}  // namespace

bool add_layer(Layer layer, MakeLayer make) {
  layers.at(static_cast<std::size_t>(layer)).store(make, std::memory_order_release);
  return true;
}

std::vector<MakeLayer> added_layers() {
  std::vector<MakeLayer> added;
  for (const auto& layer : layers) {
    const MakeLayer make = layer.load(std::memory_order_acquire);
    if (make != nullptr) added.push_back(make);
  }
  return added;
}

Extension& require_layer(const WorkerServices& services, std::string_view name) {
  Extension* layer = services.extension(name);
  if (layer == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   absl::StrFormat("worker '%s' has no layer '%s': it was started before a library "
                                   "with that layer was loaded",
                                   services.self().name, name));
  }
  return *layer;
}

}  // namespace sinew::internal
