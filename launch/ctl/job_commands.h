#pragma once

#include "CLI/CLI.hpp"
#include "sinew/launch/ctl/command.h"

namespace sinew::internal {

/// Adds the commands that ask the workers of a job; the chosen one becomes `command`.
void add_job_commands(CLI::App& app, Command& command);

}  // namespace sinew::internal
