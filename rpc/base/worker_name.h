#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace sinew {
namespace internal {

/// Letters, digits and `_ . : -`.
bool is_name_character(char c);

}  // namespace internal

/// A name is 1 to 128 letters, digits and '_', '.', ':', '-'. kInvalidArgument with one of three
/// texts: it is empty, it is too long, or it has a character that is not allowed (the text shows
/// which, and where).
absl::Status validate_worker_name(std::string_view name);

}  // namespace sinew
