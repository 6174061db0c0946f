#include "sinew/rpc/worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/process_room.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/membership/gather.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rpc/worker/worker_links.h"

namespace sinew {
namespace {

Peer peer_of(const std::shared_ptr<internal::WorkerCore>& core,
             absl::StatusOr<std::shared_ptr<internal::CallLink>> link) {
  if (!link.ok()) {
    // The others leave too at such a time, and are forgotten: that is no mistake in the name.
    if (!core->is_running()) {
      throw RpcError(ErrorCode::kFailedPrecondition,
                     absl::StrFormat("worker '%s' was shut down: it has no peers any more",
                                     core->self().name));
    }
    if (const absl::Status evicted = core->evicted(); !evicted.ok()) internal::throw_error(evicted);
    internal::throw_error(link.status());
  }
  return PeerAccess::make(core, *std::move(link));
}

// Those that it starts with, and one each that it and gRPC are soon to need. gRPC ends the process,
// or does not go on, where it cannot start a thread.
constexpr std::size_t kThreadsAlone = 4;
constexpr std::size_t kThreadsWithGrpc = 16;
// Those that it starts with, and some for the first connections.
constexpr std::size_t kFilesWithGrpc = 12;

void check_room(const WorkerOptions& options) {
  const bool is_alone = absl::StartsWith(options.init_method, "inproc:");
  absl::Status room = internal::check_room_for_threads(is_alone ? kThreadsAlone : kThreadsWithGrpc);
  if (room.ok() && !is_alone) room = internal::check_room_for_files(kFilesWithGrpc);
  if (!room.ok()) internal::throw_error(room);
}

}  // namespace

Worker Worker::start(WorkerOptions options) {
  if (absl::Status may = internal::ProcessLife::may_start_worker(); !may.ok()) {
    internal::throw_error(may);
  }
  check_room(options);
  // Before its threads are there, and again for what it has made static.
  internal::ProcessLife::watch();
  Worker worker(internal::WorkerCore::start(std::move(options)));
  internal::ProcessLife::watch();
  return worker;
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

void Worker::barrier(std::chrono::nanoseconds timeout) const { barrier({}, timeout); }

void Worker::barrier(std::vector<std::string> names, std::chrono::nanoseconds timeout) const {
  all_gather({}, std::move(names), timeout);
}

std::map<std::string, std::string> Worker::all_gather(std::string bytes,
                                                      std::vector<std::string> names,
                                                      std::chrono::nanoseconds timeout) const {
  if (!core().is_running()) {
    throw RpcError(
        ErrorCode::kFailedPrecondition,
        absl::StrFormat("worker '%s' was shut down: it meets nobody any more", core().self().name));
  }
  if (const absl::Status evicted = core().evicted(); !evicted.ok()) internal::throw_error(evicted);
  if (names.empty()) {
    for (const WorkerInfo& worker : core().live_workers()) names.push_back(worker.name);
  }
  std::sort(names.begin(), names.end());
  const std::vector<std::string> values =
      core()
          .gather()
          .all_gather_async(names, std::move(bytes), timeout, internal::LossMode::kFail)
          .wait();
  std::map<std::string, std::string> by_name;
  for (std::size_t i = 0; i < names.size(); ++i) by_name.emplace(names[i], values[i]);
  return by_name;
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
