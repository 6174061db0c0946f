#pragma once

#include <exception>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sinew {

/// gRPC's codes, under the names that Abseil gives them (kUnavailable, kDeadlineExceeded, ...).
using ErrorCode = absl::StatusCode;

/// What is known about the callee when a call fails.
enum class Execution {
  /// The method was not started and never will be: repeating the call is safe.
  kDidNotRun,
  /// The method may have been started, may be running still or may have finished.
  kMayHaveRun,
};

/// Everything that is known about a failure. `message` is the whole text for people; `type_name`
/// and `remote_message` are set when a handler of the callee threw: the exception's type and its
/// own text.
struct ErrorInfo {
  ErrorCode code = ErrorCode::kUnknown;
  std::string message;
  /// Name of the worker that was called, or of the one whose loss made the call fail before that:
  /// the owner of a reference. Empty when the failure concerns no peer.
  std::string peer;
  /// Wire name of the method that was called; empty when the failure concerns no method.
  std::string method;
  Execution execution = Execution::kDidNotRun;
  std::string type_name;
  std::string remote_message;
};

/// The one exception that Sinew's public functions throw. Copying is cheap and does not throw.
class RpcError : public std::runtime_error {
 public:
  explicit RpcError(ErrorInfo info);
  /// Shorthand for local failures that concern neither peer nor method.
  RpcError(ErrorCode code, std::string message);

  ErrorCode code() const { return info_->code; }
  const std::string& message() const { return info_->message; }
  const std::string& peer() const { return info_->peer; }
  const std::string& method() const { return info_->method; }
  Execution execution() const { return info_->execution; }
  const std::string& type_name() const { return info_->type_name; }
  const std::string& remote_message() const { return info_->remote_message; }
  const ErrorInfo& info() const { return *info_; }

 private:
  std::shared_ptr<const ErrorInfo> info_;
};

std::ostream& operator<<(std::ostream& out, Execution execution);

namespace internal {

/// Wraps a status that is not OK. `peer` and `method` may be empty.
std::exception_ptr make_error(const absl::Status& status, std::string_view peer = {},
                              std::string_view method = {},
                              Execution execution = Execution::kDidNotRun);
std::exception_ptr make_error(ErrorInfo info);
[[noreturn]] void throw_error(const absl::Status& status);

/// Notes in `status`, which must not be OK, that the failure concerns that worker: errors made of
/// it name it as their peer unless another one is given.
absl::Status about_peer(absl::Status status, std::string_view peer);

/// Describes any exception: an RpcError keeps its fields; std::bad_alloc, std::invalid_argument,
/// std::out_of_range and the like get the matching code and their (demangled) type name; what is no
/// std::exception gets kUnknown and its type name. `error` must not be null.
ErrorInfo describe(const std::exception_ptr& error);
absl::Status to_status(const std::exception_ptr& error);

/// Makes a text of a peer fit to be shown or logged: control characters other than newline and tab
/// are escaped, invalid UTF-8 is replaced, and it is cut at `limit_bytes` with a note that says so.
std::string printable(std::string_view text, std::size_t limit_bytes = std::size_t{16} << 10);

}  // namespace internal
}  // namespace sinew
