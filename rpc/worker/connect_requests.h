#pragma once

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

class WorkerCore;

/// Requests to open a connection (rule L8), so that a worker serves calls too that others cannot
/// reach: who does not get through to it tells the coordinator, and the coordinator asks it to
/// come. When and how often that is said is the links' business (link/connection_reversal.h).
/// Thread-safe.
class ConnectRequests {
 public:
  explicit ConnectRequests(WorkerCore& core) : core_(core) {}

  /// Adds the control methods "sinew.link.*": before the worker accepts.
  void add_methods();
  /// This worker does not get through to `peer`. Its link with it is told whether it has been asked
  /// to come.
  void on_unreached(const WorkerInfo& peer);

 private:
  void serve_ask(const WorkerInfo& from, const std::string& body);
  void serve_dial(const WorkerInfo& from, const std::string& body);
  void pass_on(const WorkerInfo& asker, const WorkerInfo& target);
  void tell_link(const WorkerInfo& peer, bool is_asked);

  WorkerCore& core_;

  Mutex mutex_;
  // Who asks for whom, at the coordinator: as long as the other one has not answered, the same
  // question is not passed on again.
  absl::flat_hash_set<std::pair<Incarnation, Incarnation>> passed_on_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
