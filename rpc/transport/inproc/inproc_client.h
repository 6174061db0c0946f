#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "sinew/rpc/transport/inproc/inproc_network.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// One unary call of a client that is no worker. Thread-safe.
class InprocClientCall {
 public:
  virtual ~InprocClientCall() = default;
  /// Waits for the answer, at most a day. kDeadlineExceeded when there is none within `timeout`;
  /// the call goes on then. The answer can be taken once.
  virtual absl::StatusOr<Frame> wait(std::chrono::nanoseconds timeout) = 0;
  virtual bool finished() const = 0;
  /// Gives up: the call finishes with kCancelled unless it has finished, and the worker is told.
  virtual void cancel() = 0;
};

/// Starts a call of the worker at `address`: what a foreign client does over gRPC.
/// `request.envelope` is a serialised sinew.proto.Call. `time_left` is what the worker is told; it
/// is not enforced here. The call fails with kUnavailable when no worker listens there,
/// kUnimplemented when that worker takes no unary calls.
std::shared_ptr<InprocClientCall> start_inproc_unary_call(
    const std::shared_ptr<InprocNetwork>& network, std::string_view address, Frame request,
    AuthenticatedPeer client = {},
    std::chrono::nanoseconds time_left = std::chrono::nanoseconds::max());

}  // namespace sinew::internal
