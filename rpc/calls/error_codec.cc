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

constexpr std::size_t kMaxNameBytes = 512;

proto::ErrorOrigin write_origin(ErrorOrigin origin) {
  switch (origin) {
    case ErrorOrigin::kThisWorker:
      return proto::ORIGIN_CALLER;
    case ErrorOrigin::kNetwork:
      return proto::ORIGIN_NETWORK;
    case ErrorOrigin::kCallee:
      return proto::ORIGIN_CALLEE;
    case ErrorOrigin::kHandler:
      return proto::ORIGIN_HANDLER;
    case ErrorOrigin::kNestedCall:
      return proto::ORIGIN_NESTED_CALL;
  }
  return proto::ORIGIN_UNKNOWN;
}

// What a newer peer may know besides counts as the callee's, which is the most general.
ErrorOrigin read_origin(proto::ErrorOrigin origin) {
  switch (origin) {
    case proto::ORIGIN_CALLER:
      return ErrorOrigin::kThisWorker;
    case proto::ORIGIN_NETWORK:
      return ErrorOrigin::kNetwork;
    case proto::ORIGIN_HANDLER:
      return ErrorOrigin::kHandler;
    case proto::ORIGIN_NESTED_CALL:
      return ErrorOrigin::kNestedCall;
    default:
      return ErrorOrigin::kCallee;
  }
}

// Of what a callee answered, that is not possible.
bool is_of_caller(ErrorOrigin origin) {
  return origin == ErrorOrigin::kThisWorker || origin == ErrorOrigin::kNetwork;
}

}  // namespace

void write_error(const ErrorInfo& info, proto::Error& error) {
  error.set_code(info.code == ErrorCode::kOk ? static_cast<int>(ErrorCode::kUnknown)
                                             : static_cast<int>(info.code));
  error.set_message(printable(info.message, kMaxTextBytes));
  error.set_execution(info.execution == Execution::kDidNotRun ? proto::DID_NOT_RUN
                                                              : proto::MAY_HAVE_RUN);
  error.set_type_name(printable(info.type_name, kMaxNameBytes));
  error.set_remote_message(printable(info.remote_message, kMaxTextBytes));
  error.set_origin(write_origin(info.origin));
  for (const FailedCall& call : info.causes) {
    if (error.causes_size() == static_cast<int>(kMaxCauses)) break;
    proto::FailedCall& cause = *error.add_causes();
    cause.set_worker(printable(call.peer, kMaxNameBytes));
    cause.set_method(printable(call.method, kMaxNameBytes));
    cause.set_origin(write_origin(call.origin));
  }
}

ErrorInfo read_error(const proto::Error& error, std::string_view peer, std::string_view method) {
  ErrorInfo info;
  info.code = code_of(error.code());
  info.message = indented(printable(error.message(), kMaxReceivedTextBytes));
  info.peer = std::string(peer);
  info.method = std::string(method);
  info.execution =
      error.execution() == proto::DID_NOT_RUN ? Execution::kDidNotRun : Execution::kMayHaveRun;
  info.type_name = printable(error.type_name(), kMaxNameBytes);
  info.remote_message = printable(error.remote_message(), kMaxReceivedTextBytes);
  info.origin = read_origin(error.origin());
  if (is_of_caller(info.origin)) info.origin = ErrorOrigin::kCallee;
  if (info.origin != ErrorOrigin::kNestedCall) return info;
  for (const proto::FailedCall& cause : error.causes()) {
    if (info.causes.size() == kMaxCauses) break;
    info.causes.push_back({printable(cause.worker(), kMaxNameBytes),
                           printable(cause.method(), kMaxNameBytes), read_origin(cause.origin())});
  }
  return info;
}

}  // namespace sinew::internal
