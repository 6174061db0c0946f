#pragma once

#include "sinew/rpc/worker.h"

namespace examples {

/// Tells whoever watches the process, such as the health check of a container, where its worker
/// listens, whichever port the system has given it: writes the line "HOST:PORT NAME" to the file
/// that SINEW_EXAMPLES_ADDRESS_FILE names, if it names one. Each worker that a process starts
/// replaces what was there. Throws std::runtime_error when it cannot be written.
void tell_address(const sinew::Worker& worker);

}  // namespace examples
