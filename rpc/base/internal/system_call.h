#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sinew::internal {

/// Why a system call did not work, for people: names it, and who may have denied it where the error
/// is no state of things (EPERM, ENOSYS). `error` is an errno.
std::string call_failure(absl::string_view call, int error);

}  // namespace sinew::internal
