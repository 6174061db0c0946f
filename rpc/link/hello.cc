#include "sinew/rpc/link/hello.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/link/identity_codec.h"

namespace sinew::internal {
namespace {

std::string unproved_bytes(proto::Hello hello) {
  hello.clear_proof();
  // The same bytes at both ends: there are no maps and no unknown fields in a hello that is
  // checked.
  return hello.SerializeAsString();
}

// For people, and for whatever is no Sinew worker.
absl::StatusCode code_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
    case Refusal::kNotListeningYet:
    case Refusal::kDuplicate:
    case Refusal::kBusy:
    case Refusal::kUnreachable:
    case Refusal::kWhoAnswers:
      return absl::StatusCode::kUnavailable;
    case Refusal::kOtherIncarnation:
      return absl::StatusCode::kNotFound;
    case Refusal::kNotAllowed:
      return absl::StatusCode::kPermissionDenied;
    case Refusal::kOtherJob:
    case Refusal::kOtherProtocol:
    case Refusal::kLostHere:
    case Refusal::kEvicted:
    case Refusal::kLeft:
      return absl::StatusCode::kFailedPrecondition;
  }
  return absl::StatusCode::kUnavailable;
}

}  // namespace

void write_self(const SelfDescription& self, proto::Hello& hello) {
  hello.set_protocol(kProtocolVersion);
  hello.set_job(self.job);
  write_identity(self.worker, *hello.mutable_worker());
  // Whoever wants to know a rank asks the list of members.
  hello.mutable_worker()->clear_rank();
  hello.set_address(self.address);
  hello.set_method_digest(self.method_digest);
}

std::string seal_hello(proto::Hello hello, const LinkSecret& secret, Half half) {
  if (half == Half::kTell) hello.set_secret(secret.own_half());
  if (secret.is_shared()) hello.set_proof(secret.prove(unproved_bytes(hello)));
  return hello.SerializeAsString();
}

bool is_proved(const proto::Hello& hello, const LinkSecret& secret) {
  return secret.check(unproved_bytes(hello), hello.proof());
}

absl::Status refuse(const SelfDescription& self, Refusal refusal, const std::string& text,
                    const LinkSecret* secret) {
  proto::Hello hello;
  write_self(self, hello);
  hello.set_refusal(static_cast<proto::Refusal>(refusal));
  hello.set_refusal_text(printable(text, 512));
  absl::Status status(code_of(refusal), text);
  status.SetPayload(kRefusalPayload,
                    absl::Cord(secret == nullptr ? hello.SerializeAsString()
                                                 : seal_hello(hello, *secret, Half::kKeep)));
  return status;
}

absl::StatusOr<proto::Hello> read_refusal(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRefusalPayload);
  proto::Hello hello;
  if (!payload.has_value() || !hello.ParseFromString(std::string(*payload)) ||
      !proto::Refusal_IsValid(hello.refusal()) || hello.refusal() == proto::ACCEPTED) {
    return absl::NotFoundError("nothing was refused");
  }
  return hello;
}

absl::StatusOr<proto::Hello> parse_hello(const std::string& bytes, const std::string& address) {
  proto::Hello hello;
  if (!hello.ParseFromString(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s sent a greeting that is not one of a worker", address));
  }
  return hello;
}

Unwelcome check_hello(const proto::Hello& hello, const SelfDescription& self,
                      const AuthenticatedPeer& remote) {
  if (hello.protocol() != kProtocolVersion) {
    return {
        Refusal::kOtherProtocol,
        absl::StrFormat(
            "protocol version %d is spoken here, %s speaks %d: build both from the same release",
            kProtocolVersion, remote.address, hello.protocol())};
  }
  if (hello.job() != self.job) {
    return {Refusal::kOtherJob,
            absl::StrFormat(
                "this worker belongs to job '%s', the other one to job '%s': their addresses are "
                "mixed up",
                self.job, printable(hello.job(), 128))};
  }
  const std::string& name = hello.worker().name();
  if (const absl::Status valid = validate_worker_name(name); !valid.ok()) {
    return {Refusal::kNotAllowed, std::string(valid.message())};
  }
  if (hello.worker().incarnation() == 0) {
    return {Refusal::kNotAllowed, absl::StrFormat("worker '%s' sent no incarnation", name)};
  }
  if (remote.authenticated &&
      std::find(remote.names.begin(), remote.names.end(), name) == remote.names.end()) {
    return {Refusal::kNotAllowed,
            absl::StrFormat("a worker says that its name is '%s', but its certificate is for %s: "
                            "put the name among the certificate's subject alternative names",
                            name, absl::StrJoin(remote.names, ", "))};
  }
  return {};
}

}  // namespace sinew::internal
