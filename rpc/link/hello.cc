#include "sinew/rpc/link/hello.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rpc/transport/authority.h"

namespace sinew::internal {
namespace {

// The same bytes at both ends: there are no maps and no unknown fields in a hello that is checked.
std::string signed_bytes(proto::Hello hello) {
  hello.clear_signature();
  return "sinew.proto.Hello" + hello.SerializeAsString();
}

std::string proof_of_token(proto::Hello hello, const std::string& token) {
  hello.clear_signature();
  hello.clear_token_proof();
  return mac_of(token, hello.SerializeAsString());
}

// Certificates that name no job are good for all that trust their authority.
Unwelcome check_job(const SelfDescription& self, const AuthenticatedPeer& remote) {
  if (!remote.authenticated) return {};
  const std::string own = job_uri(self.job);
  std::string other;
  for (const std::string& name : remote.names) {
    if (name == own) return {};
    if (is_job_uri(name)) other = name;
  }
  if (other.empty()) return {};
  return {Refusal::kNotAllowed,
          absl::StrFormat("a certificate is for %s, and this is the job '%s': use certificates of "
                          "this job",
                          printable(other, 256), self.job)};
}

Unwelcome check_token(const proto::Hello& hello, const SelfDescription& self) {
  if (self.token.empty() && hello.token_proof().empty()) return {};
  const std::string other = absl::StrFormat("what says to be worker '%s'", hello.worker().name());
  const char* const remedy =
      "give all processes of the job the same SINEW_JOB_TOKEN or SINEW_JOB_TOKEN_FILE";
  if (self.token.empty()) {
    return {Refusal::kNotAllowed,
            absl::StrFormat("%s has a token of its job, and worker '%s' has none: %s", other,
                            self.worker.name, remedy)};
  }
  if (are_equal_secrets(hello.token_proof(), proof_of_token(hello, self.token))) return {};
  return {Refusal::kNotAllowed,
          absl::StrFormat("%s does not know the token of this job: %s", other, remedy)};
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
  // Ranks are looked up in the list of members.
  hello.mutable_worker()->clear_rank();
  hello.set_address(self.address);
  hello.set_method_digest(self.method_digest);
}

std::string seal_hello(proto::Hello hello, const SelfDescription& self) {
  hello.set_key(self.key->public_half());
  if (!self.token.empty()) hello.set_token_proof(proof_of_token(hello, self.token));
  hello.set_signature(self.key->sign(signed_bytes(hello)));
  return hello.SerializeAsString();
}

bool is_signed(const proto::Hello& hello) {
  return is_signed_by({hello.worker().incarnation()}, hello.key(), signed_bytes(hello),
                      hello.signature());
}

absl::Status refuse(const SelfDescription& self, Refusal refusal, const std::string& text,
                    const proto::Hello& said) {
  proto::Hello hello;
  write_self(self, hello);
  // Of no use to anybody else, nor later.
  *hello.mutable_expected() = said.worker();
  hello.set_attempt(said.attempt());
  hello.set_refusal(static_cast<proto::Refusal>(refusal));
  hello.set_refusal_text(printable(text, 512));
  absl::Status status(code_of(refusal), text);
  status.SetPayload(kRefusalPayload, absl::Cord(seal_hello(hello, self)));
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
                      const AuthenticatedPeer& remote, Certified certified) {
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
  if (!is_signed(hello)) {
    return {Refusal::kNotAllowed,
            absl::StrFormat("the worker '%s' that it says to be has not signed its hello", name)};
  }
  if (Unwelcome stranger = check_token(hello, self); stranger.refusal != Refusal::kNone) {
    return stranger;
  }
  if (Unwelcome stranger = check_job(self, remote); stranger.refusal != Refusal::kNone) {
    return stranger;
  }
  if (remote.authenticated && certified == Certified::kTheName &&
      std::find(remote.names.begin(), remote.names.end(), name) == remote.names.end()) {
    return {Refusal::kNotAllowed,
            absl::StrFormat("a worker says that its name is '%s', but its certificate is for %s: "
                            "put the name among the certificate's subject alternative names",
                            name, absl::StrJoin(remote.names, ", "))};
  }
  return {};
}

}  // namespace sinew::internal
