#include "sinew/tests/launch/spawn_functions.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <set>
#include <stdexcept>
#include <thread>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/launch/spawn.h"
#include "sinew/rpc/base/stop_signal.h"
#include "sinew/rpc/rpc.h"

namespace sinew::testing {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "unset" : value;
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::logic_error(what);
}

void touch(const std::string& folder, const std::string& name) {
  std::ofstream(absl::StrCat(folder, "/.", name)) << ::getpid() << std::endl;
  // Complete when it is seen.
  std::filesystem::rename(absl::StrCat(folder, "/.", name), absl::StrCat(folder, "/", name));
}

void wait_for_file(const std::string& path) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (!std::filesystem::exists(path)) {
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error("there is no " + path);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

int twice(int value) { return 2 * value; }

at::Tensor doubled(const at::Tensor& value) { return value * 2; }

void write_place(int rank, const std::string& folder) {
  std::ofstream file(absl::StrCat(folder, "/", rank));
  for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK",
                           "MASTER_ADDR", "OWN_VARIABLE", "OMP_NUM_THREADS", "SINEW_SPAWN"}) {
    file << name << "=" << variable(name) << "\n";
  }
  std::set<std::string> descriptors;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string target = std::filesystem::read_symlink(entry).string();
    // This file, and the list itself.
    if (target.find(folder) == std::string::npos && target.find("/proc/") == std::string::npos) {
      descriptors.insert(entry.path().filename().string());
    }
  }
  file << "descriptors=";
  for (const std::string& number : descriptors) file << number << " ";
  struct sigaction action {};
  ::sigaction(SIGPIPE, nullptr, &action);
  file << "\nsigpipe=" << (action.sa_handler == SIG_DFL ? "default" : "other") << "\n";
  sigset_t blocked;
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  file << "blocked=" << ::sigismember(&blocked, SIGUSR1) << ::sigismember(&blocked, SIGTERM)
       << "\nport=" << (std::stoi(variable("MASTER_PORT")) > 0) << "\n";
}

void write_token(int rank, const std::string& folder) {
  std::ofstream(absl::StrCat(folder, "/", rank)) << variable("SINEW_JOB_TOKEN");
}

void check_arguments(int, const Settings& settings, std::string bytes, std::uint64_t large,
                     const std::map<std::string, std::vector<double>>& map,
                     std::optional<int> nothing, bool yes) {
  require(settings.name == "net" && settings.rate == 0.5, "the struct differs");
  require(settings.widths == std::vector<int>{3, 5}, "the list in the struct differs");
  require(bytes == std::string("\0\xff ", 3), "the bytes differ");
  require(large == UINT64_MAX, "the large number differs");
  require(map.at("a") == std::vector<double>{1, 2}, "the map differs");
  require(!nothing && yes, "the small values differ");
}

void check_tensors(int rank, at::Tensor large, const std::vector<at::Tensor>& others) {
  require(large.equal(at::arange(1 << 20).view({1024, 1024}).t()), "the large tensor differs");
  // Each process has its own.
  large.fill_(rank);
  require(others.at(0).equal(at::full({2}, 7, at::kHalf)), "the half tensor differs");
  require(others.at(1).numel() == 0, "the empty tensor differs");
  require(others.at(2).equal(at::ones({2}, at::kBool)), "the boolean tensor differs");
}

void do_nothing(int) {}

void wait_for_ever(int) {
  while (true) ::pause();
}

void throw_runtime_error(int rank, const std::string& text) {
  if (rank == 1) throw std::runtime_error(text);
}

void throw_rpc_error(int) {
  ErrorInfo info;
  info.code = ErrorCode::kNotFound;
  info.message = "no such layer";
  info.peer = "ps";
  info.method = "app::layer";
  info.execution = Execution::kMayHaveRun;
  throw RpcError(info);
}

void throw_number(int) { throw 3; }  // NOLINT

void exit_with(int, int code) { std::exit(code); }

void raise_signal(int, int signal) { ::raise(signal); }

void call_terminate(int) { std::terminate(); }

void one_throws(int rank, int which) {
  if (rank == which) throw std::out_of_range("this one");
  wait_for_ever(rank);
}

void ignore_and_one_throws(int rank, int nprocs, const std::string& folder) {
  ::signal(SIGTERM, SIG_IGN);
  touch(folder, absl::StrCat(rank));
  if (rank == 0) {
    for (int other = 0; other < nprocs; ++other) wait_for_file(absl::StrCat(folder, "/", other));
    throw std::runtime_error("all are there");
  }
  wait_for_ever(rank);
}

void wait_for_pipe(int, const std::string& pipe) {
  const int number = ::open(pipe.c_str(), O_RDONLY);
  require(number >= 0, "cannot open the pipe");
  ::close(number);
}

void announce_and_wait(int rank, const std::string& folder) {
  touch(folder, absl::StrCat(::getppid(), "-", rank));
  wait_for_ever(rank);
}

void spawn_announcers(int, const std::string& folder) {
  spawn(&announce_and_wait, 2, SpawnOptions(), folder);
}

void spawn_nothing(int) { spawn(&do_nothing, 2); }

void write_lines(int rank, int count) {
  for (int line = 0; line < count; ++line) {
    const std::string text =
        absl::StrCat(line, " ", std::string(300, static_cast<char>('a' + rank)));
    // Pieces, between which others write.
    for (const char c : text) std::cout << c << std::flush;
    std::cout << std::endl;
  }
  std::cout << "no end";
}

namespace {

Worker join_as(int rank) {
  WorkerOptions options;
  options.name = absl::StrCat("w", rank);
  options.init_method = "env://";
  options.methods.add<&twice>().add<&doubled>();
  return init_rpc(options);
}

/// Until tensors come beside gRPC, or somebody says by a file that they do not.
void exchange_tensors(int rank, const std::string& folder) {
  const Worker worker = join_as(rank);
  const at::Tensor ones = at::ones({1 << 18});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (worker.counters().at("rpc.plane_fetched_tensors") == 0 &&
         !std::filesystem::exists(absl::StrCat(folder, "/enough"))) {
    const at::Tensor result =
        worker.peer(absl::StrCat("w", rank == 0 ? 1 : 0)).call<&doubled>(ones);
    require(result.equal(ones * 2), "the tensor differs");
    require(std::chrono::steady_clock::now() < deadline, "no tensor has come beside gRPC");
  }
  worker.shutdown();
}

/// Rank 0 works until it is asked to end, the others serve; then all write results, which takes a
/// while.
void work_until_asked(int rank, const std::string& folder) {
  const Worker worker = join_as(rank);
  touch(folder, absl::StrCat("pid", rank));
  if (rank == 0) {
    std::promise<void> asked;
    const StopSignal stop([&] { asked.set_value(); });
    asked.get_future().wait();
    ShutdownOptions at_once;
    at_once.graceful = false;
    worker.shutdown(at_once);
  } else {
    worker.serve_until_done();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  touch(folder, absl::StrCat("result", rank));
}

/// Processes that end well, are ended, and fail; what is said of the last ones.
std::string three_jobs(const SpawnOptions& options) {
  try {
    spawn(&do_nothing, 2, options);
    const ProcessContext processes = start_processes(&wait_for_ever, 2, options);
    processes.terminate();
    processes.join();
    spawn(&exit_with, 2, options, 7);
  } catch (const RpcError& error) {
    return error.what();
  }
  return "nothing failed";
}

}  // namespace

void call_all_others(int rank, int nprocs) {
  const Worker worker = join_as(rank);
  for (int other = 0; other < nprocs; ++other) {
    const int result = worker.peer(absl::StrCat("w", other)).call<&twice>(other);
    require(result == 2 * other, "a call went wrong");
  }
  worker.shutdown();
}

int drive(const std::string& what, const std::string& folder) {
  SpawnOptions options;
  if (what == "call" || what == "die") {
    if (what == "die" && variable("RANK") == "1") return 5;
    call_all_others(std::stoi(variable("RANK")), std::stoi(variable("WORLD_SIZE")));
    return 0;
  }
  if (what == "tensors") {
    exchange_tensors(std::stoi(variable("RANK")), folder);
  } else if (what == "work") {
    work_until_asked(std::stoi(variable("RANK")), folder);
  } else if (what == "three") {
    std::cout << three_jobs(options) << std::endl;
  } else if (what == "announce") {
    spawn(&announce_and_wait, 3, options, folder);
  } else if (what == "nested") {
    spawn(&spawn_announcers, 2, options, folder);
  } else if (what == "storm") {
    spawn(&announce_and_wait, 32, options, folder);
  } else if (what == "lines") {
    options.output = SpawnOptions::Output::kPrefixed;
    spawn(&write_lines, 3, options, 40);
  } else if (what == "unready") {
    try {
      spawn(&do_nothing, 2);
    } catch (const RpcError& error) {
      std::cout << error.what() << std::endl;
      return error.code() == ErrorCode::kFailedPrecondition ? 0 : 1;
    }
  } else {
    return 2;
  }
  return 0;
}

}  // namespace sinew::testing
