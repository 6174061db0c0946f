#pragma once

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "sinew/groups/internal/store_backend.h"
#include "sinew/groups/internal/store_table.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// A StoreTable with a lock and timers: what serves a store to all kinds of clients. Thread-safe.
class StoreService : public std::enable_shared_from_this<StoreService> {
 public:
  /// Called once, on any thread, with no lock held; must not block.
  using OnReply = std::function<void(proto::StoreReply reply)>;
  using RequestId = StoreTable::WaiterId;

  explicit StoreService(Timers& timers) : timers_(timers) {}

  /// Returns what forget() takes. `on_reply` may have been called already.
  RequestId serve(const proto::StoreRequest& request, OnReply on_reply);
  /// `on_reply` is not called any more, but for a call that is under way.
  void forget(RequestId id);
  /// From now on all fails with that, what waits too. Idempotent.
  void stop(const absl::Status& reason);

 private:
  using Calls = std::vector<std::pair<OnReply, proto::StoreReply>>;

  Calls take_locked(std::vector<StoreTable::Answer> answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void set_timer_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_timer();

  Timers& timers_;

  Mutex mutex_;
  StoreTable table_ ABSL_GUARDED_BY(mutex_);
  RequestId last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<RequestId, OnReply> waiting_ ABSL_GUARDED_BY(mutex_);
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
  std::optional<Clock::TimePoint> timer_for_ ABSL_GUARDED_BY(mutex_);
};

/// The service's own process asks it. Shares it.
std::shared_ptr<StoreBackend> make_local_store(std::shared_ptr<StoreService> service);

}  // namespace sinew::internal
