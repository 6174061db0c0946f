#pragma once

#include <string>

#include "sinew/launch/internal/place_variables.h"
#include "sinew/launch/internal/supervisor.h"

namespace sinew::internal {

/// Who ended how, a line for each process of the last attempt, and a heading.
std::string end_table(const Supervisor& supervisor, const JobPlace& place);

/// "rank 3 (trainer, pid 4711) exited with code 1". `process`: counts on this node.
std::string process_text(const Supervisor& supervisor, const JobPlace& place, std::size_t process);

}  // namespace sinew::internal
