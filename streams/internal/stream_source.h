#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/wire/codec.h"
#include "sinew/streams/internal/stream_bytes.h"
#include "sinew/streams/internal/stream_sender.h"

namespace sinew::internal {

class Invocation;
class StreamsManager;
class WorkerServices;

/// Items that go in one answer.
class StreamItems {
 public:
  virtual ~StreamItems() = default;
  virtual void encode(ValueWriter& writer) const = 0;
};

/// The writing end of a stream: the rules (StreamSender) with items, pulls that wait, and those who
/// wait for room. At first it is not sent, so it is not pulled. Thread-safe.
class StreamSource : public std::enable_shared_from_this<StreamSource> {
 public:
  explicit StreamSource(StreamSender::Limits limits);
  virtual ~StreamSource();
  StreamSource(const StreamSource&) = delete;
  StreamSource& operator=(const StreamSource&) = delete;

  // --- The writer.

  /// Completes when there is room for more; fails when the stream is not read any more.
  Future<void> room();
  /// Null: that was all. Nothing where it has ended.
  void finish(std::exception_ptr error);
  bool is_stopped() const;

  // --- The stream.

  /// Where it was sent.
  struct Target {
    std::weak_ptr<StreamsManager> manager;
    std::weak_ptr<WorkerServices> services;
    WorkerInfo reader;
    std::string id;
    std::chrono::steady_clock::time_point deadline;
  };
  /// Throws kFailedPrecondition if it was sent before.
  void send(Target target);
  bool was_sent() const;
  /// Where; once it was sent.
  const Target& target() const { return target_; }

  // --- The reader's worker.

  /// Answers a pull, now or when there is something. Throws what is wrong with it.
  void pull(const std::shared_ptr<Invocation>& call, std::uint64_t most_items,
            std::uint64_t most_bytes);
  /// The stream is not read any more. `why` is thrown at the writer, and told to pulls that wait.
  void stop(std::exception_ptr why);
  /// As stop(), but only if it was never pulled: then it never will be.
  void stop_unless_pulled();

 protected:
  /// Removes the first items of the buffer.
  virtual std::unique_ptr<StreamItems> take_locked(std::size_t count)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual void drop_locked(std::vector<std::unique_ptr<StreamItems>>& dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;

  /// `store` puts the item in the buffer. True: there is room for more. Throws when there is no
  /// reader, or an end.
  template <class Store>
  bool write_item(std::uint64_t bytes, const Store& store) {
    Work work;
    bool has_room = true;
    {
      MutexLock lock(mutex_);
      if (!rules_.closed().ok()) throw_closed_locked();
      store();
      take_outputs_locked(rules_.write(bytes), work);
      has_room = !rules_.is_full();
    }
    if (!work.is_nothing()) perform(std::move(work));
    return has_room;
  }

  mutable Mutex mutex_;

 private:
  struct Answer {
    std::shared_ptr<Invocation> call;
    std::uint64_t first = 0;
    std::unique_ptr<StreamItems> items;
    bool is_last = false;
  };
  /// What is done after the lock has been released.
  struct Work {
    absl::InlinedVector<Answer, 1> answers;
    std::vector<Promise<void>> released;
    std::vector<std::unique_ptr<StreamItems>> dropped;
    /// At the end: null where the writer has none.
    std::exception_ptr error;
    bool is_over = false;
    bool is_nothing() const { return answers.empty() && released.empty() && !is_over; }
  };

  [[noreturn]] void throw_closed_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void take_outputs_locked(StreamSender::Outputs outputs, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void perform(Work work);
  void answer(const Answer& answer, const std::exception_ptr& error);

  // Constant once it was sent.
  Target target_;
  bool sent_ ABSL_GUARDED_BY(mutex_) = false;
  StreamSender rules_ ABSL_GUARDED_BY(mutex_);
  StreamSender::PullId last_pull_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<StreamSender::PullId, std::shared_ptr<Invocation>> pulls_ ABSL_GUARDED_BY(mutex_);
  std::vector<Promise<void>> waiting_ ABSL_GUARDED_BY(mutex_);
  // What the rules know as a status: the writer's end, or why the stream is not read.
  std::exception_ptr error_ ABSL_GUARDED_BY(mutex_);
  bool told_over_ ABSL_GUARDED_BY(mutex_) = false;
};

template <class T>
class TypedStreamItems final : public StreamItems {
 public:
  explicit TypedStreamItems(std::vector<T> items) : items_(std::move(items)) {}
  void encode(ValueWriter& writer) const override {
    // Otherwise the sentence has been said.
    if constexpr (is_wire_type_v<T>) Codec<std::vector<T>>::encode(writer, items_);
  }

 private:
  const std::vector<T> items_;
};

template <class T>
class TypedStreamSource final : public StreamSource {
 public:
  using StreamSource::StreamSource;

  /// As write_item().
  bool write(T item) {
    return write_item(stream_bytes(item), [&] {
      mutex_.assert_held();
      items_.push_back(std::move(item));
    });
  }

 private:
  std::unique_ptr<StreamItems> take_locked(std::size_t count) override {
    mutex_.assert_held();
    const auto end = items_.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<T> taken(std::make_move_iterator(items_.begin()), std::make_move_iterator(end));
    items_.erase(items_.begin(), end);
    return std::make_unique<TypedStreamItems<T>>(std::move(taken));
  }
  void drop_locked(std::vector<std::unique_ptr<StreamItems>>& dropped) override {
    mutex_.assert_held();
    dropped.push_back(take_locked(items_.size()));
  }

  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
