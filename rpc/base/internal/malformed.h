#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sinew::internal {

/// kInvalidArgument: bytes that came from elsewhere are not what they should be.
inline absl::Status malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed message: ", what));
}

}  // namespace sinew::internal
