#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/transport/credentials.h"

namespace sinew::internal {

/// One call of a method of a worker, as clients make it that are no workers.
struct UnaryRequest {
  /// "host:port".
  std::string address;
  /// With TLS: the worker's name, which its certificate covers. Empty: its host.
  std::string expected_name;
  proto::Call call;
};

struct UnaryClientOptions {
  Credentials credentials = Credentials::insecure();
  /// The job's token; empty: none.
  std::string token;
};

/// Makes all of these calls at once, each over a connection of its own, and returns their values in
/// the same order when all have ended, or `patience` has passed. Values without tensors alone.
/// Errors: those of the workers; kUnavailable, kDeadlineExceeded; the credentials' own.
std::vector<absl::StatusOr<proto::Value>> call_all(const std::vector<UnaryRequest>& requests,
                                                   const UnaryClientOptions& options,
                                                   std::chrono::nanoseconds patience);

}  // namespace sinew::internal
