#include "sinew/rpc/worker.h"

#include <algorithm>
#include <utility>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/wait_deadline.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/worker/member_events.h"
#include "sinew/rpc/worker/rejoiner.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rpc/worker/worker_links.h"

namespace sinew {
namespace {

Peer peer_of(const std::shared_ptr<internal::WorkerCore>& core,
             absl::StatusOr<std::shared_ptr<internal::CallLink>> link) {
  if (!link.ok()) {
    // The others leave too at such a time, and are forgotten: that is no mistake in the name.
    const bool has_ended = !core->is_running() || !core->evicted().ok();
    internal::throw_error(has_ended ? core->ended("it has no peers any more") : link.status());
  }
  return PeerAccess::make(core, *std::move(link));
}

}  // namespace

Worker init_rpc(WorkerOptions options) {
  Worker worker = WorkerAccess::make(internal::WorkerCore::start(std::move(options)));
  WorkerAccess::core(worker)->rejoiner().allow();
  return worker;
}

Worker init_rpc(std::string name, MethodTable methods) {
  WorkerOptions options;
  options.name = std::move(name);
  options.methods = std::move(methods);
  return init_rpc(std::move(options));
}

internal::WorkerCore& Worker::core() const {
  if (core_ == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "this Worker is empty: start one with sinew::init_rpc()");
  }
  core_->process().require();
  return *core_;
}

const WorkerInfo& Worker::info() const { return core().self(); }
std::string Worker::address() const { return core().address(); }
std::vector<WorkerInfo> Worker::workers() const { return core().live_workers(); }

Peer Worker::peer(std::string_view name) const { return peer_of(core_, core().links().find(name)); }
Peer Worker::peer(int rank) const { return peer_of(core_, core().links().find(rank)); }
Peer Worker::peer(const WorkerInfo& worker) const {
  return peer_of(core_, core().links().find(worker));
}

Peer Worker::wait_for(std::string_view name,
                      std::optional<std::chrono::nanoseconds> timeout) const {
  return wait_for_async(name, timeout).take();
}

Future<Peer> Worker::wait_for_async(std::string_view name,
                                    std::optional<std::chrono::nanoseconds> timeout) const {
  const absl::Status valid = validate_worker_name(name);
  if (!valid.ok()) internal::throw_error(valid);
  const internal::Clock::TimePoint deadline = internal::wait_deadline(core(), timeout);
  return core()
      .wait_for_member(std::string(name), Incarnation(), deadline)
      .then([weak = std::weak_ptr<internal::WorkerCore>(core_)](const WorkerInfo& worker) {
        const std::shared_ptr<internal::WorkerCore> core = weak.lock();
        if (core == nullptr) {
          throw RpcError(ErrorCode::kCancelled, "the worker that waited is gone");
        }
        return peer_of(core, core->links().find(worker));
      });
}

void Worker::barrier(std::optional<std::chrono::nanoseconds> timeout) const {
  barrier({}, timeout);
}

void Worker::barrier(std::vector<std::string> names,
                     std::optional<std::chrono::nanoseconds> timeout) const {
  const internal::Clock::TimePoint begun = core().clock().now();
  const internal::Clock::TimePoint deadline = internal::wait_deadline(core(), timeout);
  // The time that was given, to the digit, unless the call that is being served has less.
  const auto time = std::min<std::chrono::nanoseconds>(timeout.value_or(core().default_timeout()),
                                                       deadline - begun);
  if (names.empty()) {
    for (const WorkerInfo& worker : core().live_workers()) names.push_back(worker.name);
  }
  core().membership().all_gather_async(names, {}, time).wait();
}

MemberWatch Worker::on_member(OnMember on_member) const {
  if (on_member == nullptr) {
    throw RpcError(ErrorCode::kInvalidArgument, "on_member() was given an empty function");
  }
  constexpr std::string_view kNoMore = "nothing is heard of its members any more";
  if (!core().is_running()) internal::throw_error(core().ended(kNoMore));
  auto subscription = std::make_shared<internal::MemberSubscription>(
      name(), core().executor()->runner(), std::move(on_member));
  if (!core().member_events().add(subscription)) internal::throw_error(core().ended(kNoMore));
  return MemberWatch(std::move(subscription));
}

void Worker::set_default_timeout(std::chrono::nanoseconds timeout) const {
  core().set_default_timeout(timeout);
}
std::chrono::nanoseconds Worker::default_timeout() const { return core().default_timeout(); }

Counters Worker::counters() const { return core().counters(); }

void Worker::shutdown(const ShutdownOptions& options) const {
  internal::ProcessLife::move_on_if_exiting();
  core().shutdown(options);
}

ServedUntil Worker::serve_until_done() const {
  internal::ProcessLife::move_on_if_exiting();
  Worker serving = *this;
  while (true) {
    try {
      return serving.core().serve_until_done();
    } catch (const RpcError& error) {
      const bool comes_back = serving.core().options().on_rejoined != nullptr;
      if (!comes_back || error.code() != ErrorCode::kAborted) throw;
    }
    serving = serving.rejoin();
  }
}

Worker Worker::rejoin() const {
  internal::ProcessLife::move_on_if_exiting();
  if (core().is_own_thread()) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "a worker cannot rejoin in its own handler or continuation: it would wait for "
                   "itself; WorkerOptions::on_rejoined does without one");
  }
  return Worker(core().rejoiner().rejoin(core_));
}
bool Worker::is_running() const {
  return core_ != nullptr && !core_->process().is_orphan() && core_->is_running() &&
         core_->evicted().ok();
}
MembershipState Worker::membership_state() const {
  if (core_ == nullptr || core_->process().is_orphan()) return MembershipState::kLeft;
  return core_->membership_state();
}

std::shared_ptr<internal::WorkerServices> WorkerAccess::services(const Worker& worker) {
  return worker.core_;
}

}  // namespace sinew
