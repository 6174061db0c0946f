#pragma once

#include <string>

#include "sinew/rpc/transport/credentials.h"

namespace examples {

/// How the processes of a job on several hosts trust each other. Their environment says it, since
/// it belongs to the place where a program runs:
///
///   SINEW_EXAMPLES_CERTIFICATES=DIR    mutual TLS with DIR/ca.pem, DIR/WORKER.pem and
///   DIR/WORKER.key SINEW_EXAMPLES_TRUSTED_NETWORK=1   nothing is proved, and nothing encrypted
///
/// Without either, workers stay on loopback. Throws std::invalid_argument for both at once, and for
/// a value that is none. `worker`: its name.
sinew::Credentials credentials_of(const std::string& worker);

/// Whether SINEW_EXAMPLES_TRUSTED_NETWORK is set. Throws as credentials_of().
bool is_network_trusted();

}  // namespace examples
