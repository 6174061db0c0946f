#include "sinew/rpc/transport/grpc/connection/grpc_status.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/any.pb.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/standard/google/rpc/status.pb.h"

namespace sinew::internal {
namespace {

// gRPC's peers accept 8 KiB of trailers, and an escaped byte takes three.
constexpr std::size_t kMaxTextBytes = 1024;
// They travel as base64.
constexpr std::size_t kMaxDetailsBytes = 2816;
// Of printable(), and what the lengths of fields around a text take.
constexpr std::size_t kCutNoteBytes = 64;

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

// What is known of a call's error, as gRPC's libraries for other languages look for it: a
// google.rpc.Status. Empty: nothing.
std::string error_details(const absl::Status& status, const std::string& text) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrorPayload);
  proto::Error error;
  if (!payload.has_value() || !error.ParseFromString(std::string(*payload))) return "";
  standard::google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  // Some libraries refuse details whose text is not the status's.
  details.set_message(text);
  error.clear_message();
  const std::string remote = std::exchange(*error.mutable_remote_message(), "");
  google::protobuf::Any& detail = *details.add_details();
  detail.set_type_url(kErrorPayload);
  detail.set_value(error.SerializeAsString());
  // Of the calls that led to the error the first one and the one where it arose say most.
  while (details.ByteSizeLong() > kMaxDetailsBytes && error.causes_size() > 0) {
    error.mutable_causes()->DeleteSubrange(std::max(error.causes_size() - 2, 0), 1);
    detail.set_value(error.SerializeAsString());
  }
  const std::size_t used = details.ByteSizeLong() + kCutNoteBytes;
  if (used < kMaxDetailsBytes) {
    error.set_remote_message(printable(remote, kMaxDetailsBytes - used));
    detail.set_value(error.SerializeAsString());
  }
  return details.SerializeAsString();
}

}  // namespace

grpc::Status to_grpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::optional<absl::Cord> refusal = status.GetPayload(kRefusalPayload);
  std::string text = printable(std::string(status.message()), kMaxTextBytes);
  std::string details = refusal.has_value() ? std::string(*refusal) : error_details(status, text);
  // What does not fit is left out: the text says it too.
  if (details.size() > kMaxDetailsBytes) details.clear();
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::move(text),
                      std::move(details));
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
                             "not to accept our certificate, or has no file descriptor left")));
  }
  if (says_refused(text)) {
    return absl::NotFoundError(because(absl::StrCat("nothing listens at ", address)));
  }
  if (status.code() == absl::StatusCode::kUnimplemented) {
    return absl::NotFoundError(
        because(absl::StrCat("what answers at ", address, " is no Sinew worker")));
  }
  // The latter two, and nothing else, of a Unix socket.
  if (says_closed_at_once(text) || text == "Transport closed" || text == "Socket closed") {
    return absl::UnavailableError(
        because(absl::StrCat(address,
                             " closed the connection at once: it speaks TLS and we do not, it "
                             "has no file descriptor left (RLIMIT_NOFILE), or it has just ended")));
  }
  return absl::UnavailableError(because(absl::StrCat("the connection to ", address, " broke")));
}

}  // namespace sinew::internal
