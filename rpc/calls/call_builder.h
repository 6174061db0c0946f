#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "sinew/rpc/calls/pending_call.h"
#include "sinew/rpc/peer.h"
#include "sinew/rpc/wire/value_writer.h"

namespace sinew::proto {
class Reference;
class Retain;
}  // namespace sinew::proto

namespace sinew::internal {

class RetryRules;

/// What a call does that finds no room on its way.
enum class WhenFull { kFail, kWait };

/// Writes one call and sends it: the untyped half of call(), async() and remote(). Not thread-safe.
class CallBuilder {
 public:
  /// Throws kFailedPrecondition for an invalid peer or a worker that was shut down,
  /// kInvalidArgument for a bad timeout or RetryPolicy.
  CallBuilder(const Peer& peer, std::string_view method, const std::string& signature);
  ~CallBuilder();
  CallBuilder(const CallBuilder&) = delete;
  CallBuilder& operator=(const CallBuilder&) = delete;

  /// The next argument. Write exactly one value to it.
  ValueWriter argument();
  /// The object of a member function. Throws kInvalidArgument where the peer's options let calls go
  /// to another incarnation.
  proto::Reference& target();
  /// Asks the callee to keep the result.
  proto::Retain& retain();
  MessageRoute& route();
  /// When the call ends with an error, `explain` is asked for the exception to report in its place;
  /// null: that error.
  void explain_errors(std::function<std::exception_ptr()> explain);
  /// One more token that cancels the call.
  void cancel_with(CancellationToken token);
  /// The method may run several times: SINEW_IDEMPOTENT.
  void set_idempotent();
  /// kWait unless set: only users' calls can be many.
  void set_when_full(WhenFull when_full);
  const std::string& method() const;
  /// Runs the result's callbacks.
  std::shared_ptr<TaskRunner> runner() const;

  /// Sends the call. Failures to send reach `pending`. Call it once, last.
  void send(std::unique_ptr<PendingCall> pending);

 private:
  struct State;
  struct End {
    void operator()(State* state) const;
  };
  using StateInPlace = std::unique_ptr<State, End>;
  StateInPlace begin(const Peer& peer, std::string_view method, const std::string& signature);
  std::string why_once() const;
  RetryRules retry_rules() const;

  // Builders stand on their thread's stack, and what is of this size takes the allocator long.
  static constexpr std::size_t kStateBytes = 1536;
  alignas(std::max_align_t) std::byte memory_[kStateBytes];
  const StateInPlace state_;
};

}  // namespace sinew::internal
