#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sinew/benchmarks/measure.h"
#include "sinew/sinew.h"

/// Worker processes for `bench_scale`, which is their program too: rank 0 of a group is the process
/// that measures, the others are started by it and do what it tells them through a socket, so that
/// being told is no traffic between workers.
namespace sinew::bench {

/// Bytes and packets that this process has sent over its open TCP connections, as the kernel counts
/// them: without headers of TCP and below.
struct TcpSent {
  std::int64_t bytes = 0;
  std::int64_t packets = 0;
};
TcpSent tcp_sent();

/// Whether malloc first gives back what it keeps for later.
enum class Malloc { kAsItIs, kTrimmed };
/// Memory that no other process shares with this one.
std::int64_t private_bytes(Malloc malloc = Malloc::kAsItIs);

/// Calls noop at all other workers, at once, and waits: then this worker has a connection to each.
void greet_all(const Worker& worker);

/// What a started process can be told.
enum class Command : std::uint8_t {
  kStart,
  kGreetAll,
  kMemory,
  kTrimmedMemory,
  kTcpSent,
  kOwnedValues,
  kAwaitMembers,
  kShutdown
};

/// One started process. Throws std::runtime_error when it ends or does not answer in time.
class WorkerProcess {
 public:
  /// `rank` is only for the text of errors.
  explicit WorkerProcess(int rank);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  struct Request {
    Command command = Command::kStart;
    // Of kStart.
    bool same_host = true;
    /// They meet there: at etcd's, or at rank 0's own.
    bool is_etcd = false;
    std::uint16_t port = 0;
    std::int32_t rank = 0;
    /// 0: open membership.
    std::int32_t world_size = 0;
    /// 0: that of WorkerOptions.
    std::int64_t lease_ms = 0;
    /// Of kAwaitMembers.
    std::int32_t members = 0;
  };
  struct Answer {
    std::int64_t first = 0;
    std::int64_t second = 0;
  };
  void send(const Request& request) const;
  Answer receive() const;
  /// SIGKILL, SIGSTOP, ...
  void signal(int number) const;

 private:
  const int rank_;
  int socket_ = -1;
  pid_t process_ = -1;
};

/// Whether this process was started by a WorkerProcess.
bool is_worker_process(int argc, char** argv);
/// Its main function: ends when the process that started it does. Returns an exit status.
int run_worker_process(const MethodTable& methods);

/// A group. The processes start in the constructor, and the workers in start().
class WorkerGroup {
 public:
  WorkerGroup(int workers, MethodTable methods);

  /// Starts a job: all workers, which must meet. Seconds until the last of them has. After a
  /// shutdown() the same processes can start another one.
  double start(bool same_host);
  /// The same; they meet at the etcd that listens there.
  double start_at_etcd(std::uint16_t port);
  /// The same with open membership, and without the worker of the last rank. Returns when all that
  /// are there see each other. `lease`: 0 for that of WorkerOptions.
  void start_open_without_last(std::chrono::milliseconds lease);
  /// The last rank joins that. Seconds from the beginning of its init_rpc until all others see it.
  double join_last();
  /// Seconds from the moment when the process of the last rank gets the signal until none of the
  /// others sees its worker any more. The process is replaced by one without a worker.
  double lose_last(int signal);
  /// Seconds until each worker has called each.
  double connect_all();
  /// Worker 0.
  const Worker& worker() const { return worker_; }
  /// What each of the started processes answers.
  std::vector<WorkerProcess::Answer> ask(Command command) const;
  WorkerProcess::Answer ask(int rank, Command command) const;
  void shutdown();

 private:
  double start_fixed();
  void start_all();
  /// Of the processes that have a worker.
  void tell_started(const WorkerProcess::Request& request) const;
  void tell_to_await(int members) const;
  /// When the last of those, which have been told to await that, and of this process sees so many.
  Clock::time_point await_members(int members) const;

  const int workers_;
  const MethodTable methods_;
  /// How many of the processes have a worker: all, or all but the last.
  std::size_t started_ = 0;
  WorkerProcess::Request of_start_;
  std::vector<std::unique_ptr<WorkerProcess>> processes_;  // rank 1 and above
  Worker worker_;
};

}  // namespace sinew::bench
