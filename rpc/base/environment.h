#pragma once

#include <functional>
#include <optional>
#include <string>

namespace sinew {

/// Reads one environment variable; nullopt when it is not set.
using EnvironmentReader = std::function<std::optional<std::string>(const std::string& name)>;

/// That of the process.
EnvironmentReader process_environment();

}  // namespace sinew
