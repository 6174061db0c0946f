#pragma once

#include "absl/strings/string_view.h"

namespace sinew::internal {

/// A port for the job with that id: the same in all of its processes, and most likely another one
/// for other jobs of the host. Empty: 29500, which is torchrun's.
int job_port(absl::string_view job);

}  // namespace sinew::internal
