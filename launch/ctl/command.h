#pragma once

#include <functional>

#include "absl/status/status.h"

namespace sinew::internal {

/// What sinew-ctl was asked for. It prints its result; an error's text is for the user.
using Command = std::function<absl::Status()>;

}  // namespace sinew::internal
