#pragma once

#include <mpi.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sinew::internal {

/// What an MPI function returned, as a status that names `operation` and has MPI's own text.
absl::Status mpi_status(int code, absl::string_view operation);

}  // namespace sinew::internal
