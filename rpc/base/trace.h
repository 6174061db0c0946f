#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew {

/// A span of the program's own in the trace of this process, from here to the end of the object, on
/// the thread that has both. Without SINEW_TRACE (docs/operate.md) it does nothing.
///
///     const sinew::TraceSpan span("load batch");
class TraceSpan {
 public:
  explicit TraceSpan(std::string_view name);
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  std::string name_;
  internal::Clock::TimePoint begun_{};
};

namespace internal {

/// What this process writes of its calls, in Chrome's trace format (docs/operate.md). Thread-safe.
class Trace {
 public:
  /// Null: none is written.
  static Trace* of_process();

  /// A call in the whole job: its caller, its callee, and its number among those.
  struct CallId {
    std::uint64_t caller = 0;
    std::uint64_t callee = 0;
    std::uint64_t number = 0;
  };
  /// Whether spans of that call are written: its other end decides likewise.
  bool has(CallId call) const;
  /// A part of a call. Parts of one call make one track, whichever threads have written them.
  void part(CallId call, std::string_view name, Clock::TimePoint begin, Clock::TimePoint end);
  /// Work of the calling thread.
  void work(std::string_view name, Clock::TimePoint begin, Clock::TimePoint end);
  /// A worker of that name is in this process.
  void note_worker(std::string_view name);
  /// Writes what is kept.
  void flush();

 private:
  Trace(std::string path, std::uint64_t every);
  static Trace* make();
  double time_us(Clock::TimePoint time) const;
  void add(std::string event);
  void flush_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const std::uint64_t every_;
  /// What the wall clock is ahead of the one that spans are taken by.
  const std::chrono::nanoseconds ahead_;

  Mutex mutex_;
  bool is_begun_ ABSL_GUARDED_BY(mutex_) = false;
  std::string kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace internal
}  // namespace sinew
