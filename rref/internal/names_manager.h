#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rref/internal/name_table.h"
#include "sinew/rref/internal/reference_handle.h"

namespace sinew::internal {

/// The layer of named objects of one worker: has what the worker publishes, and answers those who
/// seek it. Thread-safe.
class NamesManager final : public Extension, public std::enable_shared_from_this<NamesManager> {
 public:
  static std::shared_ptr<NamesManager> make(WorkerServices& services);
  /// That of a worker; throws kFailedPrecondition when it was started without this layer.
  static std::shared_ptr<NamesManager> of(const WorkerServices& services);

  /// See Worker::publish().
  void publish(const std::string& name, std::shared_ptr<ReferenceHandle> handle,
               const std::type_info& type, WhenTaken when_taken);
  bool unpublish(std::string_view name);

  /// What is published under `name`; kNotFound, with similar names.
  absl::StatusOr<std::shared_ptr<ReferenceHandle>> find(const std::string& name) const;

  /// Serves kGetMethod.
  static void serve_get(const std::shared_ptr<Invocation>& call);

  // --- Extension
  std::string_view layer() const override { return "names"; }
  void on_note(const WorkerInfo&, std::string) override {}
  void on_worker_fenced(const WorkerInfo& worker) override;
  void on_worker_lost(const WorkerInfo&) override {}
  /// names.published: objects published here; names.waiters: questions of others for such as are
  /// not.
  void add_counters(Counters& counters) const override;
  std::vector<Method> methods() const override;
  void report(StateReport& report) const override;
  Future<std::vector<std::string>> drain_async(DrainScope, Clock::TimePoint) override;
  void stop() override;

 private:
  using Answer = Promise<std::string>;
  struct Waiter {
    Answer answer;
    std::string name;
    Timers::TimerId timer = 0;
  };

  explicit NamesManager(WorkerServices& services) : services_(services) {}

  Future<std::string> on_query(const WorkerInfo& from, const std::string& body);
  void on_overdue(NameTable::WaiterId waiter);
  std::vector<Waiter> take_waiters_locked(const std::vector<NameTable::WaiterId>& ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ends() const;
  static void fail(const std::vector<Waiter>& waiters, const absl::Status& reason);
  void close();

  WorkerServices& services_;

  mutable Mutex mutex_;
  // Nothing is published any more.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  NameTable table_ ABSL_GUARDED_BY(mutex_);
  std::map<NameTable::WaiterId, Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
};

/// The control method by which a worker asks for a name: a NameQuery, answered by a NameState.
inline constexpr std::string_view kWaitMethod = "sinew.names.wait";
/// The method by which it fetches the object: `(string name, string type) -> reference`.
inline constexpr std::string_view kGetMethod = "sinew.names.get";

}  // namespace sinew::internal
