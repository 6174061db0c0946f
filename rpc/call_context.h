#pragma once

#include <map>
#include <string>
#include <vector>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/thread_context.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/cancellation.h"

namespace sinew {

class Worker;

/// What a handler can ask about the call that it serves. Continuations of futures that were made in
/// the handler see the same context. Thread-safe.
class CallContext : public internal::ThreadContext {
 public:
  /// The context of the call that this thread serves. Throws RpcError kFailedPrecondition outside
  /// of a handler.
  static const CallContext& current();
  /// Null outside of a handler.
  static const CallContext* current_or_null();

  /// Values by key; a key may come several times.
  using Metadata = std::multimap<std::string, std::string>;

  /// Who called: the member of the job at the other end of the link, whatever the message says.
  /// With mutual TLS its certificate covers that name. A client that is no worker has an empty name
  /// and rank -1.
  const WorkerInfo& caller() const { return caller_; }
  /// The names that the caller, worker or not, has proved by its certificate: subject alternative
  /// names, then the common name. Empty with all credentials but mutual TLS, which prove nothing of
  /// callers, and for calls of a worker to itself.
  virtual std::vector<std::string> identities() const = 0;
  /// Wire name of the method being served.
  virtual const std::string& method() const = 0;
  /// What a client that is no worker said in addition to its arguments: gRPC's metadata, at most 8
  /// KiB. Keys are of a-z 0-9 _ - and . and values are printable ASCII, but for keys that end in
  /// "-bin": those are any bytes. None of it is verified. Empty for calls of workers. It lives as
  /// long as this context.
  virtual const Metadata& metadata() const = 0;
  /// The worker that serves the call.
  virtual Worker worker() const = 0;
  /// When the caller stops waiting; Clock::TimePoint::max() for calls without a limit.
  internal::Clock::TimePoint deadline() const override { return deadline_; }
  /// Cancelled when the caller cancelled the call, stopped waiting, or was lost.
  CancellationToken cancellation() const { return cancellation_.token(); }
  /// Methods that led here, outermost first, this one last.
  virtual std::vector<std::string> chain() const = 0;
  std::string describe_chain() const override;

 protected:
  CallContext(WorkerInfo caller, internal::Clock::TimePoint deadline);

  const WorkerInfo caller_;
  const internal::Clock::TimePoint deadline_;
  internal::LateCancellation cancellation_;
};

/// The worker whose handler this thread runs; elsewhere the only one that runs in this process.
/// Throws RpcError kFailedPrecondition where that is none, or one of several: the text says which.
Worker current_worker();

}  // namespace sinew
