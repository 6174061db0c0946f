#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/Parallel.h"
#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sinew/launch/internal/fork_channel.h"
#include "sinew/launch/internal/fork_server.h"
#include "sinew/launch/internal/fork_service.h"
#include "sinew/launch/process_end.h"
#include "sinew/launch/spawn.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/rpc.h"
#include "sinew/tests/launch/spawn_checks.h"
#include "sinew/tests/launch/spawn_functions.h"
#include "sinew/tests/support/eventual_value.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

namespace sinew::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Ne;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

/// What the program does before main() calls init_launch(), and before main() begins.
constexpr char kBeforeVariable[] = "SINEW_TEST_BEFORE_LAUNCH";

std::string before_launch() {
  const char* const value = std::getenv(kBeforeVariable);
  return value == nullptr ? "" : value;
}

const bool rank_was_known = [] {
  if (before_launch() == "thread") {
    std::thread([] {
      while (true) ::pause();
    }).detach();
  }
  return std::getenv("RANK") != nullptr;
}();

void act_before_launch() {
  const std::string what = before_launch();
  if (what == "file") {
    static_cast<void>(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  } else if (what == "worker") {
    WorkerOptions options;
    options.name = "early";
    options.init_method = "tcp://127.0.0.1:0?rank=0&world_size=1";
    init_rpc(options).shutdown();
  } else if (what == "text") {
    // Each has a buffer of its own then.
    std::ios::sync_with_stdio(false);
    std::printf("before\n");
    std::cout << "and\n";
    std::printf("behind\n");
  } else if (what == "signals") {
    ::signal(SIGCHLD, SIG_IGN);
    sigset_t signals;
    ::sigemptyset(&signals);
    ::sigaddset(&signals, SIGUSR2);
    ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  } else if (what.rfind("helper ", 0) == 0) {
    // It holds what it has inherited, until the test removes its file.
    if (::fork() == 0) {
      ::execlp("sh", "sh", "-c", "while [ -e \"$0\" ]; do sleep 0.1; done",
               what.substr(what.find(' ') + 1).c_str(), nullptr);
      ::_exit(127);
    }
  }
}

SpawnOptions options_before(const std::string& what) {
  SpawnOptions options;
  options.environment = {{kBeforeVariable, what}};
  return options;
}

void write(int rank, const std::string& folder, const std::string& text) {
  const std::string path = absl::StrCat(folder, "/", rank);
  std::ofstream(path + ".tmp") << text << std::flush;
  std::filesystem::rename(path + ".tmp", path);
}

std::vector<std::string> written(const TemporaryFolder& folder, int nprocs) {
  std::vector<std::string> result;
  for (int rank = 0; rank < nprocs; ++rank) {
    result.push_back(contents(folder.file(absl::StrCat(rank))));
  }
  return result;
}

void write_parent(int rank, const std::string& folder) {
  write(rank, folder, absl::StrCat(::getppid()));
}

void write_parent_and_wait(int rank, const std::string& folder) {
  write_parent(rank, folder);
  wait_for_ever(rank);
}

TEST(ForkServer, IsTheParentOfAll) {
  const TemporaryFolder folder;
  const ProcessContext processes =
      start_processes(&write_parent, 3, SpawnOptions(), folder.file(""));
  EXPECT_EQ(processes.fork_server_obstacle(), "");
  EXPECT_TRUE(processes.join());
  const std::vector<std::string> parents = written(folder, 3);
  EXPECT_THAT(parents, Each(parents.front()));
  EXPECT_NE(parents.front(), absl::StrCat(::getpid()));

  SpawnOptions each;
  each.start = SpawnOptions::Start::kExec;
  spawn(&write_parent, 2, each, folder.file(""));
  EXPECT_THAT(written(folder, 2), Each(absl::StrCat(::getpid())));
}

TEST(ForkServer, IsNotWhereItsProcessesWouldShareThreadsOrFiles) {
  const std::vector<std::pair<const char*, const char*>> obstacles = {
      {"thread", "2 threads"}, {"file", "(/dev/zero) is open"}, {"worker", "a worker was started"}};
  for (const auto& [what, text] : obstacles) {
    const TemporaryFolder folder;
    const ProcessContext processes =
        start_processes(&write_parent, 2, options_before(what), folder.file(""));
    EXPECT_TRUE(processes.join());
    EXPECT_THAT(processes.fork_server_obstacle(), HasSubstr(text));
    EXPECT_THAT(written(folder, 2), Each(absl::StrCat(::getpid())));
  }
}

void write_own_values(int rank, const std::string& folder) {
  absl::BitGen bits;
  write(rank, folder,
        absl::StrCat(random_secret(), " ", absl::Uniform<std::uint64_t>(bits), " ",
                     at::rand({2}, at::kDouble).sum().item<double>()));
}

TEST(ForkServer, ProcessesDrawTheirOwnRandomNumbers) {
  const TemporaryFolder folder;
  spawn(&write_own_values, 3, SpawnOptions(), folder.file(""));
  std::set<std::string> numbers;
  for (const std::string& text : written(folder, 3)) {
    for (const auto& number : absl::StrSplit(text, ' ')) numbers.emplace(number);
  }
  EXPECT_THAT(numbers, SizeIs(9));
}

void write_ranks(int rank, const std::string& folder) {
  write(rank, folder,
        absl::StrCat(rank_was_known ? "early " : "", std::getenv("RANK"), std::getenv("LOCAL_RANK"),
                     std::getenv("ROLE_RANK"), std::getenv("SINEW_SPAWN") == nullptr ? "" : "?"));
}

TEST(ForkServer, RanksAreKnownWhenTheFunctionRuns) {
  const TemporaryFolder folder;
  // That of this process is not theirs.
  ::setenv("RANK", "7", 1);
  spawn(&write_ranks, 2, SpawnOptions(), folder.file(""));
  ::unsetenv("RANK");
  EXPECT_THAT(written(folder, 2), ElementsAre("000", "111"));
  SpawnOptions options;
  options.environment = {{"ROLE_RANK", "x"}};
  spawn(&write_ranks, 2, options, folder.file(""));
  EXPECT_THAT(written(folder, 2), ElementsAre("00x", "11x"));
}

TEST(ForkServer, WhatIsBufferedIsWrittenOnce) {
  const std::string output = run_program(
      {"/usr/bin/env", absl::StrCat(kBeforeVariable, "=text"), own_path(), "--nothing"});
  // That of this program, and that of the server. Which buffer is written first is the libraries'.
  const std::vector<std::string> lines = absl::StrSplit(output, '\n', absl::SkipEmpty());
  EXPECT_THAT(lines, UnorderedElementsAre("before", "before", "and", "and", "behind", "behind"));
}

void write_signals(int rank, const std::string& folder) {
  struct sigaction action {};
  ::sigaction(SIGCHLD, nullptr, &action);
  sigset_t blocked;
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  std::string text = action.sa_handler == SIG_IGN ? "ignored" : "default";
  for (int number = 1; number < SIGRTMIN; ++number) {
    if (::sigismember(&blocked, number) == 1) absl::StrAppend(&text, " ", number);
  }
  write(rank, folder, text);
}

TEST(ForkServer, SignalsAreAsTheProgramHasSetThem) {
  const TemporaryFolder folder;
  EXPECT_NO_THROW(spawn(&write_signals, 2, SpawnOptions(), folder.file("")));
  EXPECT_THAT(written(folder, 2), Each("default"));
  // The ends of processes are known though the program ignores them.
  const ProcessContext processes =
      start_processes(&write_signals, 2, options_before("signals"), folder.file(""));
  EXPECT_EQ(processes.fork_server_obstacle(), "");
  EXPECT_TRUE(processes.join());
  EXPECT_THAT(written(folder, 2), Each(absl::StrCat("ignored ", SIGUSR2)));
  EXPECT_EQ(failure_of([] { spawn(&exit_with, 1, options_before("signals"), 9); }).end(),
            ProcessEnd::exited(9));
}

void compute(int) {
  at::set_num_threads(2);
  const at::Tensor ones = at::ones({300, 300}).requires_grad_();
  const at::Tensor product = at::mm(ones, ones);
  if (product.min().item<float>() != 300) throw std::logic_error("the product is wrong");
  product.sum().backward();
  if (ones.grad().max().item<float>() != 600) throw std::logic_error("the gradient is wrong");
}

TEST(ForkServer, ProcessesComputeWithThreads) { EXPECT_NO_THROW(spawn(&compute, 3)); }

pid_t server_of(const TemporaryFolder& folder, int nprocs) {
  return std::stoi(eventual_value([&] { return written(folder, nprocs); }, Each(Ne(""))).front());
}

TEST(ForkServer, ProcessesEndWithIt) {
  // Another process that has its end of the channel does not hide that it is gone.
  const TemporaryFolder files;
  std::ofstream(files.file("helper")) << "runs";
  for (const std::string& before : {std::string(), "helper " + files.file("helper")}) {
    const TemporaryFolder folder;
    const ProcessContext processes =
        start_processes(&write_parent_and_wait, 3, options_before(before), folder.file(""));
    ::kill(server_of(folder, 3), SIGKILL);
    const SpawnError error = failure_of([&] { processes.join(); });
    EXPECT_EQ(error.end().kind, ProcessEnd::Kind::kWithServer);
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
    EXPECT_EQ(error.message(), absl::StrCat("spawned process ", error.rank(), " (pid ", error.pid(),
                                            ") was ended because its fork server was"));
    for (const pid_t pid : processes.pids()) EXPECT_FALSE(is_running(pid));
  }
}

TEST(ForkServer, IsNotEndedBySignalsThatAreForTheProcesses) {
  const TemporaryFolder folder;
  const ProcessContext processes =
      start_processes(&write_parent_and_wait, 2, SpawnOptions(), folder.file(""));
  const pid_t server = server_of(folder, 2);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::kill(server, number);
  ::kill(processes.pids().at(1), SIGINT);
  const SpawnError error = failure_of([&] { processes.join(); });
  EXPECT_EQ(error.rank(), 1);
  EXPECT_EQ(error.end(), ProcessEnd::signalled(SIGINT));
}

TEST(ForkServer, ThatIsStoppedGoesOnWhenProcessesAreToldToEnd) {
  const TemporaryFolder folder;
  // They are not given up before.
  SpawnOptions options;
  options.grace = std::chrono::hours(1);
  const ProcessContext processes =
      start_processes(&write_parent_and_wait, 2, options, folder.file(""));
  ::kill(server_of(folder, 2), SIGSTOP);
  EXPECT_FALSE(processes.join(10ms));
  processes.terminate();
  EXPECT_TRUE(processes.join(kJobPatience));
}

/// A fork server whose processes end at once, and which tells the ends one after the other; then it
/// stays.
[[noreturn]] void tell_all_ends_at_once() {
  using internal::ForkMessage;
  const internal::ForkChannel channel(internal::FileDescriptor(internal::kChannelDescriptor));
  bool is_well = channel.send({ForkMessage::Kind::kReady, 0, 0, "", {}}).ok();
  std::vector<pid_t> ended;
  while (is_well && channel.receive(internal::ForkChannel::Wait::kForEver).ok()) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(0);
    ended.push_back(pid);
    ForkMessage answer{ForkMessage::Kind::kForked, pid, 0, "", {}};
    answer.descriptors.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    is_well = channel.send(answer).ok();
  }
  for (const pid_t pid : ended) {
    ::waitpid(pid, nullptr, 0);
    is_well = is_well && channel.send({ForkMessage::Kind::kExited, pid, 0, "", {}}).ok();
  }
  while (is_well) ::pause();
  ::_exit(1);
}

// Who waits for the first one would not hear of it before the server ends.
TEST(ForkServer, AnEndThatWasReadWithAnotherOneCanStillBeWaitedFor) {
  internal::ChildCommand command;
  command.program = "/proc/self/exe";
  command.arguments = {"fork_server", "--all-ends-at-once"};
  auto server = internal::ForkServer::start(std::move(command));
  ASSERT_TRUE(server.ok()) << server.status();
  internal::ForkServer::Request request;
  request.output = request.error_output = request.report = STDERR_FILENO;
  const auto first = (*server)->fork(request).process;
  const auto second = (*server)->fork(request).process;
  ASSERT_TRUE(first != nullptr && second != nullptr);
  (*server)->end_forking();
  std::optional<ProcessEnd> end;
  while (!end) {
    pollfd wait{second->descriptor(), POLLIN, 0};
    ASSERT_EQ(::poll(&wait, 1, 120'000), 1);
    end = second->take_end();
  }
  EXPECT_EQ(*end, ProcessEnd::exited(0));
  pollfd wait{first->descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 0), 1);
  EXPECT_EQ(first->take_end(), ProcessEnd::exited(0));
  (*server)->end();
}

TEST(ForkServer, LeavesNothing) {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(all, std::filesystem::directory_iterator());
  };
  spawn(&do_nothing, 1);
  const auto before = descriptors();
  for (int round = 0; round < 2; ++round) {
    spawn(&do_nothing, 3);
    failure_of([] { spawn(&exit_with, 2, SpawnOptions(), 3); });
    spawn(&do_nothing, 1, options_before("thread"));
  }
  EXPECT_EQ(descriptors(), before);
  // No child, neither running nor ended.
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(ForkServer, ThereMayBeSeveral) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([i] {
      EXPECT_EQ(failure_of([i] { spawn(&exit_with, 3, SpawnOptions(), 10 + i); }).end(),
                ProcessEnd::exited(10 + i));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ForkServer, ForksMany) {
  const TemporaryFolder folder;
  spawn(&write_parent, 100, SpawnOptions(), folder.file(""));
  EXPECT_THAT(written(folder, 100), Each(Ne("")));
}

}  // namespace
}  // namespace sinew::testing

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--all-ends-at-once") {
    sinew::testing::tell_all_ends_at_once();
  }
  sinew::testing::act_before_launch();
  sinew::init_launch(argc, argv);
  if (argc > 1 && std::string(argv[1]) == "--nothing") {
    sinew::spawn(&sinew::testing::do_nothing, 2);
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
