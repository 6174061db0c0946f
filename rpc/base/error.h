#pragma once

#include <exception>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// Where a failure arose, as seen from where its error is.
enum class ErrorOrigin {
  /// Here: what the program asked for makes no sense, this worker has no room or has ended, the
  /// call was cancelled, a value could not be written or read.
  kThisWorker,
  /// Between this worker and the peer: the network, the loss of the peer, time that passed without
  /// an answer.
  kNetwork,
  /// Sinew at the callee: it serves no such method, has refused the caller or the arguments, has no
  /// room for the call or no thread in its time, or cannot send its result.
  kCallee,
  /// The callee's handler: what it threw, or failed its future with.
  kHandler,
  /// A call that the callee's handler made, and whose error it let pass.
  kNestedCall,
};

/// A call on the way of an error; what is empty is not known, or does not concern the call.
struct FailedCall {
  /// Name of the worker that was called.
  std::string peer;
  /// Wire name of the method.
  std::string method;
  /// As seen from the worker that made the call.
  ErrorOrigin origin = ErrorOrigin::kThisWorker;
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
  ErrorOrigin origin = ErrorOrigin::kThisWorker;
  /// With kNestedCall: the calls that failed one for the other, from that of the callee's handler
  /// to the one where the error arose; the first 16 of them.
  std::vector<FailedCall> causes;
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
  ErrorOrigin origin() const { return info_->origin; }
  const std::vector<FailedCall>& causes() const { return info_->causes; }
  const ErrorInfo& info() const { return *info_; }

 private:
  std::shared_ptr<const ErrorInfo> info_;
};

/// What a handler throws, or fails its future with, to turn away a call for which it has done
/// nothing: the caller gets code and text with Execution::kDidNotRun, so it may repeat the call.
/// Whatever else comes out of a handler may have run, an RpcError of a call that the handler made
/// among it, whatever that says of its own execution.
///
///     if (is_draining_) throw sinew::Rejected(sinew::ErrorCode::kUnavailable, "it drains");
class Rejected : public RpcError {
 public:
  Rejected(ErrorCode code, std::string message) : RpcError(code, std::move(message)) {}
};

std::ostream& operator<<(std::ostream& out, Execution execution);
/// "the handler"
std::ostream& operator<<(std::ostream& out, ErrorOrigin origin);

namespace internal {

/// Wraps a status that is not OK. `peer` and `method` may be empty.
std::exception_ptr make_error(const absl::Status& status, std::string_view peer = {},
                              std::string_view method = {},
                              Execution execution = Execution::kDidNotRun,
                              ErrorOrigin origin = ErrorOrigin::kThisWorker);
std::exception_ptr make_error(ErrorInfo info);
[[noreturn]] void throw_error(const absl::Status& status);

/// Notes in `status`, which must not be OK, that the failure is the loss of that worker: errors
/// made of it come from the network, and name it as their peer unless another one is given.
absl::Status about_peer(absl::Status status, std::string_view peer);

/// Describes any exception: an RpcError keeps its fields; std::bad_alloc, std::invalid_argument,
/// std::out_of_range and the like get the matching code and their (demangled) type name, c10's
/// exceptions also a text without the C++ backtrace, unless TORCH_SHOW_CPP_STACKTRACES=1 is set. Of
/// what is no std::exception, arithmetic values and texts are shown, an absl::Status gives its code
/// and text, and others get kUnknown and their type name. `error` must not be null.
ErrorInfo describe(const std::exception_ptr& error);
absl::Status to_status(const std::exception_ptr& error);

/// Makes a text of a peer fit to be shown or logged: control characters other than newline and tab
/// are escaped, invalid UTF-8 is replaced, and it is cut at `limit_bytes` with a note that says so.
std::string printable(std::string_view text, std::size_t limit_bytes = std::size_t{16} << 10);

/// The text with its further lines indented, so that none looks like a line of the program's own.
/// Done twice it is as done once.
std::string indented(std::string_view text);

}  // namespace internal
}  // namespace sinew
