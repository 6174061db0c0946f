#pragma once

#include <memory>

#include "sinew/groups/internal/store_backend.h"
#include "sinew/rpc/worker.h"

namespace sinew::internal {

/// See Store::over(). Throws RpcError.
std::shared_ptr<StoreBackend> open_worker_store(const Worker& worker);

}  // namespace sinew::internal
