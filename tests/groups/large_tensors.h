#pragma once

#include <string>

#include "sinew/groups/process_group.h"

namespace sinew::testing {

/// Runs that operation of a group of two with tensors of float of so many MiB, of which a rank
/// sends one and receives one. Returns what it has given to the group, and the most that its
/// process has had in memory: "data=6144 peak=6210", in MiB. Throws std::runtime_error when what
/// came out is not right.
std::string run_large(const ProcessGroup& group, const std::string& function, int mib);

}  // namespace sinew::testing
