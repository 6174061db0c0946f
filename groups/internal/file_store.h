#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "sinew/groups/internal/store_backend.h"

namespace sinew::internal {

/// See Store::file().
absl::StatusOr<std::shared_ptr<StoreBackend>> open_file_store(const std::string& path, int users);

}  // namespace sinew::internal
