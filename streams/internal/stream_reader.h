#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/cancellation.h"
#include "sinew/rpc/wire/codec.h"
#include "sinew/streams/internal/stream_bytes.h"
#include "sinew/streams/internal/stream_receiver.h"

namespace sinew::internal {

class Executor;
class MessageRoute;
class ReceivedReply;
class WorkerServices;

/// The reading end of a stream: the rules (StreamReceiver) with items, pulls, and those who wait
/// for an item. Thread-safe.
class StreamReader : public std::enable_shared_from_this<StreamReader> {
 public:
  /// What one pull asks for.
  static constexpr std::uint64_t kPulledItems = 1024;
  static constexpr std::uint64_t kPulledBytes = std::uint64_t{1} << 20;
  /// See StreamReceiver::Limits.
  static constexpr std::size_t kAnswers = 2;
  static constexpr std::size_t kLargeAnswers = 8;
  /// From so many bytes on an answer is a large one.
  static constexpr std::uint64_t kLargeBytes = std::uint64_t{256} << 10;

  /// The stream `id` of the sender of the message that is read.
  StreamReader(MessageRoute& route, std::string id);
  virtual ~StreamReader();
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;

  /// Once, first. Also follows the cancellation of the call that the stream belongs to.
  void begin(const MessageRoute& route);
  /// The stream is not read any more; what waits for an item fails with kCancelled.
  void stop(const char* why);

  // --- Of pulls.

  /// Items of an answer, of any type.
  class Items {
   public:
    virtual ~Items() = default;
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    /// Set: they are the last ones; null: because the writer has ended the stream.
    std::optional<std::exception_ptr> end;
  };
  /// Throws what is wrong with it.
  std::unique_ptr<Items> read(ReceivedReply& reply) const;
  void on_answer(std::unique_ptr<Items> items);
  void on_pull_failed(std::exception_ptr error);

 protected:
  virtual std::unique_ptr<Items> decode(const ValueReader& reader) const = 0;
  /// Keeps items until they are read.
  virtual void keep_locked(std::unique_ptr<Items> items) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  /// Gives those who wait so many items; then, if `ends`, tells the others the end. What is to be
  /// done once the lock has been released.
  class Wakes {
   public:
    virtual ~Wakes() = default;
    virtual void run() = 0;
  };
  virtual std::unique_ptr<Wakes> wake_locked(std::uint64_t served, bool ends)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;

  /// Of the promises of those who wait.
  Executor* executor() const;
  /// What those who read behind the end get: null is none.
  std::exception_ptr end_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Work {
    std::unique_ptr<Wakes> wakes;
    std::size_t pulls = 0;
    bool stops_writer = false;
    bool is_over = false;
  };
  void take_outputs_locked(const StreamReceiver::Outputs& outputs, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void perform(Work work);

  mutable Mutex mutex_;
  StreamReceiver rules_ ABSL_GUARDED_BY(mutex_);

 private:
  void send_pull();
  void send_stop();
  void watch(const CancellationToken& token);

  const std::weak_ptr<WorkerServices> services_;
  const std::shared_ptr<Executor> executor_;
  const WorkerInfo writer_;
  const std::string id_;
  const std::chrono::steady_clock::time_point deadline_;
  // Of the writer, and of the first pull that failed.
  std::exception_ptr end_error_ ABSL_GUARDED_BY(mutex_);
  std::exception_ptr pull_error_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<CancellationToken, std::uint64_t>> watched_ ABSL_GUARDED_BY(mutex_);
};

template <class T>
class TypedStreamReader final : public StreamReader {
 public:
  using StreamReader::StreamReader;

  std::optional<T> next() {
    {
      std::optional<T> item;
      Work work;
      MutexLock lock(mutex_);
      if (waiting_.empty() && rules_.has_next()) {
        item.emplace(take_locked());
        StreamReceiver::Outputs outputs = rules_.want();
        outputs.served = 0;  // this one, by hand
        if (outputs.pulls == 0 && !rules_.is_over()) return item;
        take_outputs_locked(outputs, work);
        lock.unlock();
        perform(std::move(work));
        return item;
      }
      if (rules_.is_over()) {
        const std::exception_ptr end = end_locked();
        lock.unlock();
        if (end != nullptr) std::rethrow_exception(end);
        return item;
      }
    }
    return next_async().take();
  }

  Future<std::optional<T>> next_async() {
    const Promise<std::optional<T>> promise(executor());
    Work work;
    {
      MutexLock lock(mutex_);
      if (rules_.is_over()) {
        const std::exception_ptr end = end_locked();
        end == nullptr ? promise.set_value(std::nullopt) : promise.set_error(end);
        return promise.future();
      }
      waiting_.push_back(promise);
      StreamReceiver::Outputs outputs = rules_.want();
      take_outputs_locked(outputs, work);
    }
    perform(std::move(work));
    return promise.future();
  }

 private:
  class TypedItems final : public Items {
   public:
    std::vector<T> items;
  };
  class TypedWakes final : public Wakes {
   public:
    void run() override {
      for (auto& [promise, item] : items) promise.try_set_value(std::move(item));
      for (auto& promise : ended) {
        end == nullptr ? promise.try_set_value(std::nullopt) : promise.try_set_error(end);
      }
    }
    std::vector<std::pair<Promise<std::optional<T>>, T>> items;
    std::vector<Promise<std::optional<T>>> ended;
    std::exception_ptr end;
  };

  std::unique_ptr<Items> decode(const ValueReader& reader) const override {
    auto answer = std::make_unique<TypedItems>();
    // Otherwise the sentence has been said.
    if constexpr (is_wire_type_v<T>) answer->items = Codec<std::vector<T>>::decode(reader);
    answer->count = answer->items.size();
    for (const auto& item : answer->items) answer->bytes += stream_bytes(item);
    return answer;
  }
  void keep_locked(std::unique_ptr<Items> items) override {
    mutex_.assert_held();
    kept_.emplace(items->first, std::move(static_cast<TypedItems&>(*items).items));
  }
  /// The next item: the rules have one.
  T take_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto front = kept_.begin();
    T item = std::move(front->second[at_]);
    if (++at_ == front->second.size()) {
      kept_.erase(front);
      at_ = 0;
    }
    return item;
  }
  std::unique_ptr<Wakes> wake_locked(std::uint64_t served, bool ends) override {
    mutex_.assert_held();
    auto wakes = std::make_unique<TypedWakes>();
    for (; served > 0; --served) {
      wakes->items.emplace_back(std::move(waiting_.front()), take_locked());
      waiting_.pop_front();
    }
    if (ends) {
      wakes->ended.assign(waiting_.begin(), waiting_.end());
      waiting_.clear();
      wakes->end = end_locked();
    }
    return wakes;
  }

  // By the number of the first; of the first ones, those from at_ on.
  std::map<std::uint64_t, std::vector<T>> kept_ ABSL_GUARDED_BY(mutex_);
  std::size_t at_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Promise<std::optional<T>>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
