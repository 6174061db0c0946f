#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace sinew {

/// Reads one environment variable; nullopt when it is not set.
using EnvironmentReader = std::function<std::optional<std::string>(const std::string& name)>;

/// That of the process.
EnvironmentReader process_environment();

/// Whether a variable is 1. kInvalidArgument for anything but 0, 1 and nothing.
absl::StatusOr<bool> switch_of(const EnvironmentReader& environment, const std::string& name);

}  // namespace sinew
