#pragma once

#include "CLI/CLI.hpp"
#include "sinew/launch/ctl/command.h"

namespace sinew::internal {

/// Adds `sinew-ctl certs`; the chosen one becomes `command`.
void add_certificate_commands(CLI::App& app, Command& command);

}  // namespace sinew::internal
