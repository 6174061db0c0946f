#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/tests/support/fault_timer.h"

namespace sinew::internal {

/// Which way a frame goes, seen from the transport that is wrapped.
enum class FaultDirection { kOutgoing, kIncoming };

/// A frame on its way through a faulty transport.
struct FaultyFrame {
  FaultDirection direction;
  Lane lane;
  const Frame& frame;
  /// Address of the other end, as far as the transport knows it.
  const std::string& peer;
  /// What the other end said in its handshake; empty before on_up.
  const std::string& remote_hello;
  /// Numbers the connections of a plan from 1.
  std::uint64_t connection;
  bool opened_here;
};

/// What happens to a frame that a rule matches.
enum class FaultAction {
  kDrop,
  /// It goes on after `delay` and whatever the seed adds of `jitter`; later frames of its lane may
  /// overtake it.
  kDelay,
  /// It goes on, and a copy of it goes on after `delay`: at once when that is zero.
  kDuplicate,
  /// It goes on right after the next `behind` frames of its lane and direction, or after `delay` if
  /// that is not zero and they have not come by then.
  kReorder,
  /// It waits until release(). Its connection may break before: then it is lost.
  kHold,
  /// It is lost and its connection breaks.
  kBreak,
  /// Incoming ones: there is no memory for it (ConnectionHandler::on_lost).
  kNoMemory,
};

struct FaultRule {
  FaultAction action = FaultAction::kDrop;
  /// Must not call the plan. Empty: all frames.
  std::function<bool(const FaultyFrame&)> matches;
  /// Of the frames that match, so many are let pass first, ...
  std::uint64_t skip = 0;
  /// ... and so many are hit after that, ...
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  /// ... each with this probability, drawn from the plan's seed, the rule and the count of matches.
  double probability = 1;
  std::chrono::nanoseconds delay{0};
  std::chrono::nanoseconds jitter{0};
  int behind = 1;
};

/// The faults of one or more faulty transports. A frame is shown to the rules in the order of their
/// ids, and the first one that hits decides. Frames that a rule let go later are not shown to the
/// rules again. Thread-safe.
class FaultPlan {
 public:
  using RuleId = std::uint64_t;

  /// Without a timer, rules with a delay need one that is made on first use and runs on real time.
  explicit FaultPlan(std::uint64_t seed, std::shared_ptr<FaultTimer> timer = nullptr);
  ~FaultPlan();
  FaultPlan(const FaultPlan&) = delete;
  FaultPlan& operator=(const FaultPlan&) = delete;

  RuleId add(FaultRule rule);
  /// Frames that it holds stay held.
  void remove(RuleId rule);
  /// Lets the frames go that the rule holds, in the order of their arrival; the rule goes on
  /// holding new ones unless it was removed. Returns how many there were.
  std::size_t release(RuleId rule);

  /// Frames that the rule was hit with so far; one to hold counts once it can be released.
  std::uint64_t hits(RuleId rule) const;
  /// Waits until there are that many. False when `timeout` ended first.
  bool wait_for_hits(RuleId rule, std::uint64_t hits, std::chrono::nanoseconds timeout) const;

  /// connect() to addresses that `matches` accepts fails with `status`, up to `limit` times.
  RuleId fail_connects(std::function<bool(const std::string& address)> matches, absl::Status status,
                       std::uint64_t limit = std::numeric_limits<std::uint64_t>::max());
  /// Connections that others open from addresses that `matches` accepts are refused with `status`.
  RuleId refuse_connects(std::function<bool(const std::string& address)> matches,
                         absl::Status status,
                         std::uint64_t limit = std::numeric_limits<std::uint64_t>::max());

  /// Breaks the live connections whose other end's address `matches` accepts. Returns how many
  /// there were.
  std::size_t break_connections(const std::function<bool(const std::string& peer)>& matches);

  /// Stops everything, both ways, as if the process were stopped: frames out and in and callbacks
  /// wait until thaw(). Connections that others open meanwhile are refused with kUnavailable: a
  /// decision cannot wait here.
  void freeze();
  void thaw();

  /// For make_faulty_transport.
  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  const std::shared_ptr<Impl> impl_;
};

}  // namespace sinew::internal
