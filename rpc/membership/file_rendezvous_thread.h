#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/membership/rendezvous_file.h"

namespace sinew::internal {

/// Runs the operations of a FileRendezvous on a thread of its own ("sinew-file"), one at a time, in
/// the order in which they are asked for: others may hold the file's lock for longer than a lease,
/// and the file system may be slow, while threads that answer heartbeats must not wait.
///
/// The functions do not block. Each callback runs once: on that thread, where those behind it wait
/// for it, or, if the operation is refused, at once on the calling thread. So callbacks post what
/// is to be done, take no lock that a caller may hold, and must not throw. Beside what
/// FileRendezvous says operations fail with kCancelled from close() on; kResourceExhausted when the
/// system starts no thread, or too many operations wait (the next one is tried again); and
/// kFailedPrecondition in a forked child.
///
/// Thread-safe.
class FileRendezvousThread final : public RendezvousFile {
 public:
  struct Options {
    /// For how long an operation waits for the lock, from when it was asked for. One that comes to
    /// its turn later tries once.
    std::chrono::nanoseconds lock_timeout = std::chrono::seconds(10);
    /// Operations that wait for their turn. Each ends within lock_timeout, if the file system does
    /// not hold it up.
    std::size_t max_waiting = 16384;
    /// As in Executor::Options.
    std::function<std::thread(std::function<void()>)> start_thread;
  };

  /// Starts no thread: the first operation does.
  FileRendezvousThread(std::string path, std::string job, Options options);
  /// As close().
  ~FileRendezvousThread() override;
  FileRendezvousThread(const FileRendezvousThread&) = delete;
  FileRendezvousThread& operator=(const FileRendezvousThread&) = delete;

  void read(OnRead then) override;
  void publish(Member self, JobInstance instance, OnDone then) override;
  void found(Member self, FileRendezvous::Contents expected, JobInstance instance,
             OnDone then) override;
  void remove(WorkerInfo worker, OnDone then) override;

  /// Cancels what waits for its turn, or for the lock, and refuses what is asked for from here on.
  /// Returns when no callback runs any more, and none will: it waits for what the operation that
  /// has its turn does with the file, but not for others to release the lock. Within a callback,
  /// and in a forked child, it does not wait. Idempotent, but not from two threads at once.
  void close() override;

  const std::string& path() const override;
  /// Operations that wait for their turn.
  std::size_t waiting() const;

 private:
  struct State;
  /// Is given why the operation cannot run, if it cannot.
  using Operation = absl::AnyInvocable<void(const absl::Status&, const FileRendezvous&) &&>;

  void ask(Operation operation);

  // The thread's too: it may outlive this when a callback lets go of it.
  const std::shared_ptr<State> state_;
};

}  // namespace sinew::internal
