#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

inline constexpr std::uint32_t kProtocolVersion = 1;

/// What a worker says of itself when a connection is made.
struct Greeting {
  WorkerInfo worker;
  /// Whom it wants to reach; incarnation 0: whoever answers.
  WorkerInfo expected;
  std::string job;
  std::string address;
  std::uint64_t method_digest = 0;
};

std::string write_hello(const Greeting& greeting);

/// Checks what the other end said: the protocol's version, the job, the name's form, and that its
/// proof of identity, where there is one, covers the name. Errors are kInvalidArgument,
/// kFailedPrecondition and kPermissionDenied, each with a sentence for people.
absl::StatusOr<Greeting> read_hello(const std::string& bytes, const std::string& job,
                                    const AuthenticatedPeer& remote);

}  // namespace sinew::internal
