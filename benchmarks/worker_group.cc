#include "sinew/benchmarks/worker_group.h"

// Not <netinet/tcp.h>: its tcp_info ends before the counters.
#include <linux/tcp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/noop.h"
#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/server_process.h"

namespace sinew::bench {
namespace {

constexpr char kWorkerFlag[] = "--worker";
/// A process is told through its standard input, which is a socket.
constexpr int kCommands = STDIN_FILENO;
constexpr std::chrono::minutes kLimit{5};

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Worker start_worker(const WorkerProcess::Request& request, const MethodTable& methods) {
  WorkerOptions options;
  options.name = "worker" + std::to_string(request.rank);
  options.methods = methods;
  const std::string address = "127.0.0.1:" + std::to_string(request.port);
  options.init_method = request.is_etcd ? "etcd://" + address + "/bench" : "tcp://" + address;
  options.rank = request.rank;
  if (request.world_size > 0) options.world_size = request.world_size;
  if (request.lease_ms > 0) options.lease = std::chrono::milliseconds(request.lease_ms);
  options.same_host = request.same_host;
  options.join_timeout = kLimit;
  options.num_threads = 2;  // of 64 processes
  return init_rpc(std::move(options));
}

/// Nanoseconds of a clock that all processes of this host share.
std::int64_t nanoseconds(Clock::time_point when) {
  return std::chrono::nanoseconds(when.time_since_epoch()).count();
}

/// When this worker first sees so many. Looks rarely enough that many processes that look leave the
/// cores to what they wait for.
Clock::time_point await_own_list(const Worker& worker, int members) {
  const std::chrono::milliseconds pause(std::max(1, members / 8));
  const Clock::time_point deadline = Clock::now() + kLimit;
  while (static_cast<int>(worker.workers().size()) != members) {
    if (Clock::now() > deadline) {
      throw std::runtime_error(worker.name() + " sees " + std::to_string(worker.workers().size()) +
                               " workers instead of " + std::to_string(members));
    }
    std::this_thread::sleep_for(pause);
  }
  return Clock::now();
}

ShutdownOptions patient() {
  ShutdownOptions options;
  options.timeout = kLimit;
  return options;
}

WorkerProcess::Answer follow(const WorkerProcess::Request& request, const MethodTable& methods,
                             Worker& worker) {
  switch (request.command) {
    case Command::kStart: {
      const Clock::time_point begin = Clock::now();
      worker = start_worker(request, methods);
      return {nanoseconds(begin), 0};
    }
    case Command::kGreetAll:
      greet_all(worker);
      return {};
    case Command::kMemory:
      return {private_bytes(), 0};
    case Command::kTrimmedMemory:
      return {private_bytes(Malloc::kTrimmed), 0};
    case Command::kTcpSent: {
      const TcpSent sent = tcp_sent();
      return {sent.bytes, sent.packets};
    }
    case Command::kOwnedValues:
      return {worker.counters()["rref.owned"], 0};
    case Command::kAwaitMembers:
      return {nanoseconds(await_own_list(worker, request.members)), 0};
    case Command::kShutdown:
      worker.shutdown(patient());
      worker = Worker();
      return {};
  }
  throw std::runtime_error("an unknown command came");
}

}  // namespace

TcpSent tcp_sent() {
  TcpSent sent;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    if (size < offsetof(tcp_info, tcpi_bytes_sent) + sizeof info.tcpi_bytes_sent) {
      throw std::runtime_error("this kernel does not count the bytes of a connection");
    }
    sent.bytes += static_cast<std::int64_t>(info.tcpi_bytes_sent);
    sent.packets += info.tcpi_data_segs_out;
  }
  return sent;
}

std::int64_t private_bytes(Malloc malloc) {
  if (malloc == Malloc::kTrimmed) malloc_trim(0);
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::int64_t kib = 0;
  std::string line;
  while (std::getline(rollup, line)) {
    long long value = 0;
    if (std::sscanf(line.c_str(), "Private_Clean: %lld kB", &value) == 1 ||
        std::sscanf(line.c_str(), "Private_Dirty: %lld kB", &value) == 1) {
      kib += value;
    }
  }
  if (kib == 0) throw std::runtime_error("/proc/self/smaps_rollup tells nothing");
  return kib * 1024;
}

void greet_all(const Worker& worker) {
  std::vector<Future<std::int64_t>> calls;
  for (const WorkerInfo& other : worker.workers()) {
    if (other.rank != worker.rank()) calls.push_back(worker.peer(other).async<&::bench::noop>());
  }
  for (const auto& call : calls) call.wait();
}

WorkerProcess::WorkerProcess(int rank) : rank_(rank) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw_errno("cannot make a socket pair");
  }
  socket_ = ends[0];
  const timeval limit{std::chrono::seconds(kLimit).count(), 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);

  // Not fork(): this process has threads by now. A fresh image also shares no heap with us, so that
  // its private memory is what it would be on a host of its own.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kCommands);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string flag = kWorkerFlag;
  char* const arguments[] = {program.data(), flag.data(), nullptr};
  const int error = posix_spawn(&process_, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(socket_);
    throw std::system_error(error, std::generic_category(), "cannot start " + program);
  }
}

WorkerProcess::~WorkerProcess() {
  close(socket_);
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

void WorkerProcess::send(const Request& request) const {
  if (::send(socket_, &request, sizeof request, MSG_NOSIGNAL) != sizeof request) {
    throw std::runtime_error("worker " + std::to_string(rank_) + " has ended");
  }
}

WorkerProcess::Answer WorkerProcess::receive() const {
  Answer answer;
  const ssize_t got = recv(socket_, &answer, sizeof answer, MSG_WAITALL);
  if (got != sizeof answer) {
    const bool late = got < 0 && errno == EAGAIN;
    throw std::runtime_error("worker " + std::to_string(rank_) +
                             (late ? " did not answer in time" : " has ended"));
  }
  return answer;
}

void WorkerProcess::signal(int number) const {
  if (kill(process_, number) != 0) throw_errno("cannot signal a worker process");
}

bool is_worker_process(int argc, char** argv) {
  return argc == 2 && std::strcmp(argv[1], kWorkerFlag) == 0;
}

int run_worker_process(const MethodTable& methods) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  compute_on_one_thread();
  Worker worker;
  WorkerProcess::Request request;
  try {
    while (recv(kCommands, &request, sizeof request, MSG_WAITALL) == sizeof request) {
      const WorkerProcess::Answer answer = follow(request, methods, worker);
      if (::send(kCommands, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer) break;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "a worker process failed: %s\n", error.what());
    std::fflush(stderr);
    _exit(1);  // not past a worker that others may still be connected to
  }
}

WorkerGroup::WorkerGroup(int workers, MethodTable methods)
    : workers_(workers), methods_(std::move(methods)) {
  for (int rank = 1; rank < workers; ++rank) {
    processes_.push_back(std::make_unique<WorkerProcess>(rank));
  }
  // An answer tells that a process has loaded LibTorch, which takes longer than all else.
  ask(Command::kMemory);
}

double WorkerGroup::start(bool same_host) {
  of_start_ = {};
  of_start_.same_host = same_host;
  of_start_.port = free_loopback_port();
  return start_fixed();
}

double WorkerGroup::start_at_etcd(std::uint16_t port) {
  of_start_ = {};
  of_start_.is_etcd = true;
  of_start_.port = port;
  return start_fixed();
}

double WorkerGroup::start_fixed() {
  of_start_.world_size = workers_;
  started_ = processes_.size();
  const Clock::time_point begin = Clock::now();
  start_all();
  return seconds_since(begin);
}

void WorkerGroup::start_all() {
  WorkerProcess::Request request = of_start_;
  for (std::size_t i = 0; i < started_; ++i) {
    ++request.rank;
    processes_[i]->send(request);
  }
  request.rank = 0;
  worker_ = start_worker(request, methods_);
  for (std::size_t i = 0; i < started_; ++i) processes_[i]->receive();
}

void WorkerGroup::start_open_without_last(std::chrono::milliseconds lease) {
  of_start_ = {};
  of_start_.port = free_loopback_port();
  of_start_.lease_ms = lease.count();
  started_ = processes_.size() - 1;
  start_all();
  tell_to_await(workers_ - 1);
  await_members(workers_ - 1);
}

double WorkerGroup::join_last() {
  tell_to_await(workers_);
  WorkerProcess::Request request = of_start_;
  request.rank = workers_ - 1;
  processes_.back()->send(request);
  const Clock::time_point seen = await_members(workers_);
  const std::int64_t begin = processes_.back()->receive().first;
  started_ = processes_.size();
  return std::chrono::duration<double>(std::chrono::nanoseconds(nanoseconds(seen) - begin)).count();
}

double WorkerGroup::lose_last(int signal) {
  started_ = processes_.size() - 1;
  tell_to_await(workers_ - 1);
  // They look by now, and what they did before is done.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const Clock::time_point begin = Clock::now();
  processes_.back()->signal(signal);
  const Clock::time_point seen = await_members(workers_ - 1);
  processes_.back() = std::make_unique<WorkerProcess>(workers_ - 1);
  ask(workers_ - 1, Command::kMemory);
  return std::chrono::duration<double>(seen - begin).count();
}

double WorkerGroup::connect_all() {
  const Clock::time_point begin = Clock::now();
  WorkerProcess::Request request;
  request.command = Command::kGreetAll;
  tell_started(request);
  greet_all(worker_);
  for (std::size_t i = 0; i < started_; ++i) processes_[i]->receive();
  return seconds_since(begin);
}

std::vector<WorkerProcess::Answer> WorkerGroup::ask(Command command) const {
  WorkerProcess::Request request;
  request.command = command;
  for (const auto& process : processes_) process->send(request);
  std::vector<WorkerProcess::Answer> answers;
  answers.reserve(processes_.size());
  for (const auto& process : processes_) answers.push_back(process->receive());
  return answers;
}

WorkerProcess::Answer WorkerGroup::ask(int rank, Command command) const {
  const WorkerProcess& process = *processes_.at(static_cast<std::size_t>(rank - 1));
  WorkerProcess::Request request;
  request.command = command;
  process.send(request);
  return process.receive();
}

void WorkerGroup::shutdown() {
  WorkerProcess::Request request;
  request.command = Command::kShutdown;
  tell_started(request);
  worker_.shutdown(patient());
  for (std::size_t i = 0; i < started_; ++i) processes_[i]->receive();
  worker_ = Worker();
  started_ = 0;
}

void WorkerGroup::tell_started(const WorkerProcess::Request& request) const {
  for (std::size_t i = 0; i < started_; ++i) processes_[i]->send(request);
}

void WorkerGroup::tell_to_await(int members) const {
  WorkerProcess::Request request;
  request.command = Command::kAwaitMembers;
  request.members = members;
  tell_started(request);
}

Clock::time_point WorkerGroup::await_members(int members) const {
  std::int64_t last = nanoseconds(await_own_list(worker_, members));
  for (std::size_t i = 0; i < started_; ++i) {
    last = std::max(last, processes_[i]->receive().first);
  }
  return Clock::time_point(std::chrono::nanoseconds(last));
}

}  // namespace sinew::bench
