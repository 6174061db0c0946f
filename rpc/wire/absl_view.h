#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace sinew::internal {

// Abseil as Debian 12 packages it has a string_view of its own, which std::string_view does not
// convert to.
inline absl::string_view absl_view(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace sinew::internal
