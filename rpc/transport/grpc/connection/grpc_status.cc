#include "sinew/rpc/transport/grpc/connection/grpc_status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {
namespace {

// gRPC's peers accept 8 KiB of trailers, and an escaped byte takes three.
constexpr std::size_t kMaxTextBytes = 1024;
// They travel as base64.
constexpr std::size_t kMaxDetailsBytes = 2048;

// gRPC reports ECONNREFUSED as UNAVAILABLE with the system's text for it, and nothing else tells it
// from a timeout or a reset. A second connect() of our own to learn the error number would race
// with a worker that is just starting, and might see another of the host's addresses. The text
// follows the process's locale, hence both.
bool says_refused(absl::string_view text) {
  return absl::StrContains(text, "Connection refused") ||
         absl::StrContains(text, std::strerror(ECONNREFUSED));
}

bool says_wrong_name(absl::string_view text) {
  return absl::StrContains(text, "is not in peer certificate") ||
         absl::StrContains(text, "Hostname Verification");
}

bool says_tls(absl::string_view text) {
  return absl::StrContains(text, "Ssl handshake failed") || absl::StrContains(text, "SSL_ERROR") ||
         absl::StrContains(text, "TSI_");
}

// In TLS 1.3 a client is done before the server has looked at its certificate: a refusal shows as a
// connection that is closed before the first byte of HTTP/2. A worker that dies in that very moment
// looks the same.
bool says_closed_at_once(absl::string_view text) {
  return absl::StrContains(text, "failed to connect to all addresses") &&
         (absl::StrContains(text, "Socket closed") || absl::StrContains(text, "reset by peer"));
}

}  // namespace

grpc::Status to_grpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::optional<absl::Cord> refusal = status.GetPayload(kRefusalPayload);
  std::string details = refusal.has_value() ? std::string(*refusal) : std::string();
  // What does not fit is left out: the text says it too.
  if (details.size() > kMaxDetailsBytes) details.clear();
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      printable(std::string(status.message()), kMaxTextBytes), std::move(details));
}

absl::Status from_grpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = status.error_code();
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  absl::Status read(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                    printable(status.error_message()));
  if (!status.error_details().empty()) {
    read.SetPayload(kRefusalPayload, absl::Cord(status.error_details()));
  }
  return read;
}

absl::Status explain_failure(const absl::Status& status, const std::string& address,
                             const Credentials& credentials) {
  const absl::string_view text = status.message();
  const auto because = [&](absl::string_view what) { return absl::StrCat(what, " (", text, ")"); };
  if (says_wrong_name(text)) {
    return absl::UnauthenticatedError(
        because(absl::StrCat("the certificate of ", address, " does not carry the expected name")));
  }
  if (says_tls(text)) {
    return absl::UnauthenticatedError(
        because(absl::StrCat("no TLS connection to ", address,
                             ": its certificate has expired or is not signed by our authority, it "
                             "does not accept ours, or it "
                             "does not speak TLS")));
  }
  if (credentials.uses_tls() && says_closed_at_once(text)) {
    return absl::UnauthenticatedError(
        because(absl::StrCat(address,
                             " closed the connection right after the TLS handshake: it seems "
                             "not to accept our certificate")));
  }
  if (says_refused(text)) {
    return absl::NotFoundError(because(absl::StrCat("nobody listens at ", address)));
  }
  if (status.code() == absl::StatusCode::kUnimplemented) {
    return absl::NotFoundError(
        because(absl::StrCat("what answers at ", address, " is no Sinew worker")));
  }
  return absl::UnavailableError(because(absl::StrCat("the connection to ", address, " broke")));
}

}  // namespace sinew::internal
