#pragma once

#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sinew::internal {

/// What follows `name` in a file whose lines begin with names, as the kernel writes them; nullopt:
/// there is no such line or file.
inline std::optional<std::string> named_line(const std::string& file, absl::string_view name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, name)) return std::string(rest);
  }
  return std::nullopt;
}

}  // namespace sinew::internal
