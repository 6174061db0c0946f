#include "sinew/rpc/base/environment.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"

namespace sinew {

EnvironmentReader process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

absl::StatusOr<bool> switch_of(const EnvironmentReader& environment, const std::string& name) {
  const std::string said = environment(name).value_or("");
  if (said == "1") return true;
  if (said.empty() || said == "0") return false;
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is '", internal::printable(said, 64), "': 1, 0 or nothing is meant"));
}

}  // namespace sinew
