#include "sinew/rpc/calls/error_codec.h"

namespace sinew::internal {
namespace {

ErrorCode code_of(int number) {
  constexpr int kLast = static_cast<int>(absl::StatusCode::kUnauthenticated);
  return number >= 1 && number <= kLast ? static_cast<ErrorCode>(number) : ErrorCode::kUnknown;
}

constexpr std::size_t kMaxTextBytes = std::size_t{16} << 10;
// The note that a text was cut must not be cut again.
constexpr std::size_t kMaxReceivedTextBytes = kMaxTextBytes + 256;

}  // namespace

void write_error(const ErrorInfo& info, proto::Error& error) {
  error.set_code(info.code == ErrorCode::kOk ? static_cast<int>(ErrorCode::kUnknown)
                                             : static_cast<int>(info.code));
  error.set_message(printable(info.message, kMaxTextBytes));
  error.set_execution(info.execution == Execution::kDidNotRun ? proto::DID_NOT_RUN
                                                              : proto::MAY_HAVE_RUN);
  error.set_type_name(printable(info.type_name, 512));
  error.set_remote_message(printable(info.remote_message, kMaxTextBytes));
}

ErrorInfo read_error(const proto::Error& error, std::string_view peer, std::string_view method) {
  ErrorInfo info;
  info.code = code_of(error.code());
  info.message = printable(error.message(), kMaxReceivedTextBytes);
  info.peer = std::string(peer);
  info.method = std::string(method);
  info.execution =
      error.execution() == proto::DID_NOT_RUN ? Execution::kDidNotRun : Execution::kMayHaveRun;
  info.type_name = printable(error.type_name(), 512);
  info.remote_message = printable(error.remote_message(), kMaxReceivedTextBytes);
  return info;
}

}  // namespace sinew::internal
