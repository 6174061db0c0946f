#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/member_event.h"

namespace sinew::internal {

/// What a MemberWatch stands for. Thread-safe.
class MemberSubscription final : public std::enable_shared_from_this<MemberSubscription> {
 public:
  /// `name`: of the worker, for the log.
  MemberSubscription(std::string name, std::shared_ptr<TaskRunner> runner, OnMember on_member);

  /// The function is called on the runner, after all events that were posted before.
  void post(const MemberEvent& event);
  /// See ~MemberWatch().
  void end();

 private:
  void run_all();
  void run(const MemberEvent& event);

  const ProcessBound process_;
  const std::string name_;
  const std::shared_ptr<TaskRunner> runner_;
  // Of the thread that runs it, or of who ends it when none does.
  OnMember on_member_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<MemberEvent> events_ ABSL_GUARDED_BY(mutex_);
  bool scheduled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread::id runs_on_ ABSL_GUARDED_BY(mutex_);
};

/// What becomes of the members, told to those who want to know: puts into their order, for each
/// member, what several threads find out. Holds no subscription, so that functions may hold the
/// worker. Thread-safe; nothing here blocks or runs user code.
class MemberEvents {
 public:
  /// `is_lost`: whether a member is lost, or has left, by now; called with a lock held.
  explicit MemberEvents(std::function<bool(const WorkerInfo&)> is_lost);

  /// False: this worker is evicted, so nothing will be told.
  bool add(const std::shared_ptr<MemberSubscription>& subscription);

  // An event of a worker that has not joined is dropped.
  void joined(const WorkerInfo& worker);
  void suspected(const WorkerInfo& worker);
  void trusted(const WorkerInfo& worker);
  /// Once is_lost() says so, and once calls to it have ended.
  void gone(const WorkerInfo& worker, Gone why, const std::string& reason);
  /// This worker. Nothing is told any more.
  void evicted(const WorkerInfo& self, const std::string& reason);

 private:
  struct Known {
    WorkerInfo worker;
    bool suspected = false;
  };
  void set_suspected(const WorkerInfo& worker, bool suspected);
  void publish_locked(const MemberEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<bool(const WorkerInfo&)> is_lost_;

  Mutex mutex_;
  std::map<Incarnation, Known> known_ ABSL_GUARDED_BY(mutex_);
  bool evicted_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<MemberSubscription>> subscriptions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
