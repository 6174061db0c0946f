#include "sinew/rpc/link/hello.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rpc/membership/rendezvous.h"

namespace sinew::internal {

std::string write_hello(const Greeting& greeting) {
  proto::Hello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_job(greeting.job);
  write_identity(greeting.worker, *hello.mutable_worker());
  write_identity(greeting.expected, *hello.mutable_expected());
  hello.set_address(greeting.address);
  hello.set_method_digest(greeting.method_digest);
  return hello.SerializeAsString();
}

absl::StatusOr<Greeting> read_hello(const std::string& bytes, const std::string& job,
                                    const AuthenticatedPeer& remote) {
  proto::Hello hello;
  if (!hello.ParseFromString(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s sent a greeting that is not one of a worker", remote.address));
  }
  if (hello.protocol() != kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "protocol version %d is spoken here, %s speaks %d: build both from the same release",
        kProtocolVersion, remote.address, hello.protocol()));
  }
  if (hello.job() != job) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "this worker belongs to job '%s', the other one to job '%s': their addresses are mixed up",
        job, printable(hello.job(), 128)));
  }
  Greeting greeting;
  greeting.worker = read_identity(hello.worker());
  greeting.expected = read_identity(hello.expected());
  greeting.job = hello.job();
  greeting.address = hello.address();
  greeting.method_digest = hello.method_digest();
  if (absl::Status valid = validate_worker_name(greeting.worker.name); !valid.ok()) return valid;
  if (greeting.worker.incarnation.value == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("worker '%s' sent no incarnation", greeting.worker.name));
  }
  if (remote.authenticated && std::find(remote.names.begin(), remote.names.end(),
                                        greeting.worker.name) == remote.names.end()) {
    return absl::PermissionDeniedError(
        absl::StrFormat("a worker says that its name is '%s', but its certificate is for %s: put "
                        "the name among the certificate's "
                        "subject alternative names",
                        greeting.worker.name, absl::StrJoin(remote.names, ", ")));
  }
  return greeting;
}

}  // namespace sinew::internal
