#pragma once

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "sinew/rpc/transport/credentials.h"

namespace sinew::internal {

/// The text, and what the status carries as kRefusalPayload or kErrorPayload, are cut to what fits
/// into gRPC's trailers.
grpc::Status to_grpc(const absl::Status& status);
/// The text was written elsewhere: it is made fit to be shown.
absl::Status from_grpc(const grpc::Status& status);

/// Turns a status that gRPC made up for a call to `address` into one that tells whether to try
/// again (see ConnectionHandler::on_down): no process there, not admitted, or broken.
absl::Status explain_failure(const absl::Status& status, const std::string& address,
                             const Credentials& credentials);

}  // namespace sinew::internal
