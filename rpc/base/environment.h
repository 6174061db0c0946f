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

/// Whether SINEW_ENCRYPTED_ONLY is 1: nothing of this process is to leave it in the clear.
/// kInvalidArgument for anything but 0, 1 and nothing.
absl::StatusOr<bool> encrypted_only_of(const EnvironmentReader& environment);

}  // namespace sinew
