#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/calls/pending_call.h"
#include "sinew/rpc/calls/retry_rules.h"

namespace sinew::internal {

class CallLink;
class WorkerServices;

/// One call that is made again where that may help, until it succeeds or the rules give it up. What
/// waits for it hears of its last attempt only. Holds no thread in between.
class RetriedCall final : public std::enable_shared_from_this<RetriedCall> {
 public:
  /// `envelope` has the call, `pending` all that holds for each attempt.
  RetriedCall(WorkerServices& services, proto::Envelope envelope, std::vector<absl::Cord> payloads,
              RetryRules rules, std::unique_ptr<PendingCall> pending);

  /// It is made once all the same, and a failure that would be repeated says that, and why.
  void only_once(std::string why) { why_once_ = std::move(why); }
  /// The first attempt. The message was written by `route`.
  void start(const std::shared_ptr<CallLink>& link, MessageRoute& route);

 private:
  class Attempt;

  void send(const std::shared_ptr<CallLink>& link, MessageRoute& route);
  void send_again(const std::shared_ptr<CallLink>& link);
  /// False: the failure is final.
  bool repeats(const std::exception_ptr& error, const std::shared_ptr<CallLink>& link,
               RetryRules::Answered answered);
  Future<std::shared_ptr<CallLink>> next_link(WorkerServices& services,
                                              const WorkerInfo& lost) const;
  /// Goes on once it is known where, unless it is cancelled before.
  void send_over(WorkerServices& services, const Future<std::shared_ptr<CallLink>>& next);

  const std::weak_ptr<WorkerServices> services_;
  // Attempts follow one another. What rewrites parts of the message refers to it.
  proto::Envelope envelope_;
  const std::vector<absl::Cord> payloads_;
  std::vector<std::function<void(MessageRoute& route)>> rewrite_;
  RetryRules rules_;
  std::string why_once_;
  const std::unique_ptr<PendingCall> pending_;
};

}  // namespace sinew::internal
