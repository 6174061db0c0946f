#include "sinew/rpc/membership/file_rendezvous_thread.h"

#include <pthread.h>

#include <deque>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/process_room.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {
namespace {

// Nobody tells when a lock is free. close() does not wait for this.

}  // namespace

/// What the thread and those who ask share.
struct FileRendezvousThread::State final : LockWait, ProcessLife::Busy {
  struct Waiting {
    Clock::TimePoint deadline;
    Operation operation;
  };

  State(std::string path, std::string job, Options with_options)
      : options(std::move(with_options)), file(std::move(path), std::move(job), *this) {}
  ~State() override {
    // A forked child lacks the thread that waits for it, which the destructor would wait for.
    if (!process.is_orphan()) delete &changed;
  }

  /// Takes `operation` only if it is OK.
  absl::Status add(Operation& operation, const std::shared_ptr<State>& self);
  void run();
  void close();

  Then pause(Clock::TimePoint since) override;
  bool stands_still() override {
    MutexLock lock(mutex);
    return !working || resting || std::this_thread::get_id() == thread_id;
  }
  void stand_still_at_exit();

  absl::Status cancelled() const {
    return absl::CancelledError(absl::StrCat("the rendezvous file '", printable(file.path()),
                                             "' is not used any more: this worker ends"));
  }

  // Constant after construction.
  const ProcessBound process;
  const Options options;
  const FileRendezvous file;

  // Touched by the thread only.
  Clock::TimePoint deadline;

  mutable Mutex mutex;
  CondVar& changed = *new CondVar;
  std::deque<Waiting> queue ABSL_GUARDED_BY(mutex);
  bool closed ABSL_GUARDED_BY(mutex) = false;
  // An operation has its turn.
  bool working ABSL_GUARDED_BY(mutex) = false;
  // It waits for the lock, or stands still.
  bool resting ABSL_GUARDED_BY(mutex) = false;
  std::thread thread ABSL_GUARDED_BY(mutex);
  std::thread::id thread_id ABSL_GUARDED_BY(mutex);
};

absl::Status FileRendezvousThread::State::add(Operation& operation,
                                              const std::shared_ptr<State>& self) {
  // Before the mutex, which a forked child may never get.
  if (absl::Status status = process.check(); !status.ok()) return status;
  const Clock::TimePoint until = deadline_after(Clock::system().now(), options.lock_timeout);
  MutexLock lock(mutex);
  if (closed) return cancelled();
  if (queue.size() >= options.max_waiting) {
    return absl::ResourceExhaustedError(
        absl::StrCat(queue.size(), " operations on the rendezvous file '", printable(file.path()),
                     "' wait already; its lock or its file system is slow"));
  }
  if (!thread.joinable()) {
    auto body = [self] { self->run(); };
    try {
      thread = options.start_thread ? options.start_thread(body) : std::thread(body);
    } catch (const std::system_error&) {
      return no_thread_started();
    }
    thread_id = thread.get_id();
  }
  queue.push_back({until, std::move(operation)});
  changed.notify_one();
  return absl::OkStatus();
}

void FileRendezvousThread::State::run() {
  pthread_setname_np(pthread_self(), "sinew-file");
  MutexLock lock(mutex);
  while (true) {
    while (queue.empty() && !closed) changed.wait(mutex);
    if (queue.empty()) return;
    const absl::Status may_run = closed ? cancelled() : absl::OkStatus();
    deadline = queue.front().deadline;
    Operation operation = std::move(queue.front().operation);
    queue.pop_front();
    working = true;
    lock.unlock();
    stand_still_at_exit();
    // An exception of a callback ends the process, as one that leaves a thread does.
    [&]() noexcept { std::exchange(operation, nullptr)(may_run, file); }();
    lock.lock();
    working = false;
  }
}

void FileRendezvousThread::State::stand_still_at_exit() {
  if (!ProcessLife::is_standstill()) return;
  {
    MutexLock lock(mutex);
    resting = true;
  }
  ProcessLife::stand_still_at_exit();
  MutexLock lock(mutex);
  resting = false;
}

LockWait::Then FileRendezvousThread::State::pause(Clock::TimePoint /*since*/) {
  Then then = Then::kTryAgain;
  {
    MutexLock lock(mutex);
    const Clock::TimePoint now = Clock::system().now();
    if (!closed && now >= deadline) return Then::kGiveUp;
    const Clock::TimePoint until = now + kLockPoll;
    resting = true;
    while (!closed && Clock::system().now() < until) changed.wait_until(mutex, until);
    resting = false;
    if (closed) then = Then::kCancel;
  }
  // The process may have begun to end while this was no work.
  stand_still_at_exit();
  return then;
}

void FileRendezvousThread::State::close() {
  std::thread ending;
  {
    MutexLock lock(mutex);
    closed = true;
    changed.notify_one();
    ending = std::exchange(thread, std::thread());
  }
  if (!ending.joinable()) return;
  if (ending.get_id() == std::this_thread::get_id()) {
    ending.detach();
  } else {
    ending.join();
  }
}

FileRendezvousThread::FileRendezvousThread(std::string path, std::string job, Options options)
    : state_(std::make_shared<State>(std::move(path), std::move(job), std::move(options))) {
  ProcessLife::add(state_.get());
}

FileRendezvousThread::~FileRendezvousThread() { close(); }

void FileRendezvousThread::close() {
  // The child has no thread, and maybe a mutex that is held for ever. The state is the missing
  // thread's too, so it stays.
  if (state_->process.is_orphan()) return;
  ProcessLife::remove(state_.get());
  ProcessLife::move_on_if_exiting();
  state_->close();
}

const std::string& FileRendezvousThread::path() const { return state_->file.path(); }

std::size_t FileRendezvousThread::waiting() const {
  MutexLock lock(state_->mutex);
  return state_->queue.size();
}

void FileRendezvousThread::ask(Operation operation) {
  const absl::Status refused = state_->add(operation, state_);
  if (!refused.ok()) std::move(operation)(refused, state_->file);
}

void FileRendezvousThread::read(OnRead then) {
  ask([then = std::move(then)](const absl::Status& may_run, const FileRendezvous& file) mutable {
    std::move(then)(may_run.ok() ? file.read() : may_run);
  });
}

void FileRendezvousThread::publish(Member self, JobInstance instance, OnDone then) {
  ask([self = std::move(self), instance, then = std::move(then)](
          const absl::Status& may_run, const FileRendezvous& file) mutable {
    std::move(then)(may_run.ok() ? file.publish(self, instance) : may_run);
  });
}

void FileRendezvousThread::found(Member self, FileRendezvous::Contents expected,
                                 JobInstance instance, OnDone then) {
  ask([self = std::move(self), expected = std::move(expected), instance, then = std::move(then)](
          const absl::Status& may_run, const FileRendezvous& file) mutable {
    std::move(then)(may_run.ok() ? file.found(self, expected, instance) : may_run);
  });
}

void FileRendezvousThread::remove(WorkerInfo worker, OnDone then) {
  ask([worker = std::move(worker), then = std::move(then)](const absl::Status& may_run,
                                                           const FileRendezvous& file) mutable {
    std::move(then)(may_run.ok() ? file.remove(worker) : may_run);
  });
}

}  // namespace sinew::internal
