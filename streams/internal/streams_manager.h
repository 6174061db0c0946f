#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/streams/internal/stream_source.h"

namespace sinew::internal {

/// The layer of streams of one worker: has the writing ends of those that it has sent, and answers
/// those who read them. Reading ends need no table: what fails a pull ends them. Thread-safe.
class StreamsManager final : public Extension, public std::enable_shared_from_this<StreamsManager> {
 public:
  /// A receiver of a stream that has the message begins to read within this time, or never will:
  /// the message may have arrived too late for its call.
  static constexpr std::chrono::nanoseconds kTimeToBegin = std::chrono::seconds(30);

  /// For the reason of a message that failed to come out.
  static constexpr std::chrono::nanoseconds kTimeToLearn = std::chrono::seconds(2);
  /// Of a stream whose time is over.
  static constexpr std::chrono::nanoseconds kTimeToTell = std::chrono::seconds(5);

  explicit StreamsManager(WorkerServices& services) : services_(services) {}
  /// That of a worker; throws kFailedPrecondition when it was started without this layer.
  static std::shared_ptr<StreamsManager> of(const WorkerServices& services);

  /// Makes the other end of `route` the one that may read. The id by which it does. Throws when
  /// that cannot be.
  std::string send(const std::shared_ptr<StreamSource>& source, MessageRoute& route);
  /// The stream is over.
  void on_over(const std::string& id);

  // --- Extension
  std::string_view layer() const override { return "streams"; }
  void on_note(const WorkerInfo&, std::string) override {}
  void on_worker_fenced(const WorkerInfo& worker) override;
  void on_worker_lost(const WorkerInfo&) override {}
  /// streams.written: those that are sent to others and have not ended.
  void add_counters(Counters& counters) const override;
  std::vector<Method> methods() const override;
  Future<std::vector<std::string>> drain_async(DrainScope, Clock::TimePoint) override;
  void stop() override;

 private:
  struct Entry {
    std::shared_ptr<StreamSource> source;
    Timers::TimerId deadline_timer = 0;
    Timers::TimerId begin_timer = 0;
    /// It has ended, and who reads it may not have been told why.
    bool has_end_to_tell = false;
  };

  static void serve_pull(const std::shared_ptr<Invocation>& call);
  static void serve_stop(const std::shared_ptr<Invocation>& call);
  /// Throws kNotFound unless it was sent to the caller.
  std::shared_ptr<StreamSource> find(const std::string& id, const Invocation& call) const;
  void on_carrier_failed(const std::string& id);
  void on_never_begun(const std::string& id);
  void on_carrier_end(const std::string& id, CarrierEnd how, bool in_reply);
  std::shared_ptr<StreamSource> find(const std::string& id) const;
  Timers::TimerId set_timer(Clock::TimePoint when, const std::string& id,
                            void (StreamsManager::*run)(const std::string& id));
  void on_deadline(const std::string& id);
  void forget(const std::string& id);
  void stop_all(const absl::Status& why);

  WorkerServices& services_;

  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<std::string, Entry> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
