#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sinew/launch/spawn.h"
#include "sinew/rpc/rpc.h"
#include "sinew/tests/launch/spawn_checks.h"
#include "sinew/tests/launch/spawn_functions.h"
#include "sinew/tests/support/eventual_value.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

namespace sinew::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(Spawn, RunsTheFunctionInAProcessForEachRank) {
  const TemporaryFolder folder;
  ::signal(SIGPIPE, SIG_IGN);
  ::unsetenv("OMP_NUM_THREADS");
  // That of this process is not theirs.
  ::setenv("RANK", "7", 1);
  // Neither is for the processes.
  const int open_file = ::open("/dev/zero", O_RDONLY);
  const int far_away = ::dup2(open_file, 99);
  SpawnOptions options;
  options.environment = {{"OWN_VARIABLE", "mine"}};
  spawn(&write_place, 3, options, folder.file(""));
  ::unsetenv("RANK");
  ::close(open_file);
  ::close(far_away);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(contents(folder.file(absl::StrCat(rank))),
              absl::StrCat(
                  "RANK=", rank, "\nLOCAL_RANK=", rank,
                  "\nWORLD_SIZE=3\nLOCAL_WORLD_SIZE=3\nGROUP_RANK=0\n"
                  "MASTER_ADDR=127.0.0.1\nOWN_VARIABLE=mine\nOMP_NUM_THREADS=1\nSINEW_SPAWN=unset\n"
                  "descriptors=0 1 2 4 \nsigpipe=default\nblocked=00\nport=1\n"));
  }
}

TEST(Spawn, WhoAsksForThreadsOrIsAloneHasThem) {
  const TemporaryFolder folder;
  SpawnOptions options;
  ::unsetenv("OMP_NUM_THREADS");
  spawn(&write_place, 1, options, folder.file(""));
  EXPECT_THAT(contents(folder.file("0")), HasSubstr("OMP_NUM_THREADS=unset\n"));
  ::setenv("OMP_NUM_THREADS", "3", 1);
  spawn(&write_place, 2, options, folder.file(""));
  EXPECT_THAT(contents(folder.file("1")), HasSubstr("OMP_NUM_THREADS=3\n"));
  ::unsetenv("OMP_NUM_THREADS");
  options.environment = {{"OMP_NUM_THREADS", "5"}};
  spawn(&write_place, 2, options, folder.file(""));
  EXPECT_THAT(contents(folder.file("1")), HasSubstr("OMP_NUM_THREADS=5\n"));
}

TEST(Spawn, AJobOfItsOwnHasAToken) {
  const TemporaryFolder folder;
  SpawnOptions options;
  ::unsetenv("SINEW_JOB_TOKEN");
  spawn(&write_token, 2, options, folder.file(""));
  const std::string token = contents(folder.file("0"));
  EXPECT_EQ(token.size(), 32u) << token;
  EXPECT_EQ(contents(folder.file("1")), token);
  spawn(&write_token, 1, options, folder.file(""));
  EXPECT_NE(contents(folder.file("0")), token);
  ::setenv("SINEW_JOB_TOKEN", "given", 1);
  spawn(&write_token, 1, options, folder.file(""));
  EXPECT_EQ(contents(folder.file("0")), "given");
  ::unsetenv("SINEW_JOB_TOKEN");
  options.environment = {{"SINEW_JOB_TOKEN", "mine"}};
  spawn(&write_token, 1, options, folder.file(""));
  EXPECT_EQ(contents(folder.file("0")), "mine");
  // Others come to the same place.
  options = {};
  options.master_port = 29999;
  spawn(&write_token, 1, options, folder.file(""));
  EXPECT_EQ(contents(folder.file("0")), "unset");
}

TEST(Spawn, SeveralHostsCountTheirRanksOn) {
  const TemporaryFolder folder;
  SpawnOptions options;
  options.nodes = 2;
  options.node_rank = 1;
  options.master_addr = "10.0.0.7";
  options.master_port = 2345;
  spawn(&write_place, 2, options, folder.file(""));
  EXPECT_THAT(contents(folder.file("1")),
              AllOf(HasSubstr("RANK=3\nLOCAL_RANK=1\nWORLD_SIZE=4\nLOCAL_WORLD_SIZE=2\n"
                              "GROUP_RANK=1\nMASTER_ADDR=10.0.0.7\n")));
}

TEST(Spawn, PassesArgumentsOfAllKinds) {
  spawn(&check_arguments, 2, SpawnOptions(), Settings{"net", 0.5, {3, 5}},
        std::string("\0\xff ", 3), UINT64_MAX,
        std::map<std::string, std::vector<double>>{{"a", {1, 2}}}, std::nullopt, true);
  const std::vector<at::Tensor> others = {at::full({2}, 7, at::kHalf), at::empty({0, 3}),
                                          at::ones({2}, at::kBool)};
  spawn(&check_tensors, 2, SpawnOptions(), at::arange(1 << 20).view({1024, 1024}).t(), others);
}

TEST(Spawn, TellsWhichExceptionWasThrown) {
  const SpawnError error =
      failure_of([] { spawn(&throw_runtime_error, 2, SpawnOptions(), "no\nluck"); });
  EXPECT_EQ(error.rank(), 1);
  EXPECT_GT(error.pid(), 0);
  EXPECT_EQ(error.cause(), SpawnError::Cause::kException);
  EXPECT_EQ(error.end(), ProcessEnd::exited(1));
  EXPECT_EQ(error.type_name(), "std::runtime_error");
  EXPECT_EQ(error.remote_message(), "no\nluck");
  EXPECT_EQ(error.code(), ErrorCode::kUnknown);
  EXPECT_EQ(error.message(), absl::StrCat("spawned process 1 (pid ", error.pid(),
                                          ") threw std::runtime_error: no\nluck"));
}

TEST(Spawn, KeepsTheFieldsOfAnRpcError) {
  const SpawnError error = failure_of([] { spawn(&throw_rpc_error, 1); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_EQ(error.peer(), "ps");
  EXPECT_EQ(error.method(), "app::layer");
  EXPECT_EQ(error.execution(), Execution::kMayHaveRun);
  EXPECT_THAT(error.what(), HasSubstr("no such layer"));
}

TEST(Spawn, TellsOfWhatIsNoException) {
  const SpawnError error = failure_of([] { spawn(&throw_number, 1); });
  EXPECT_EQ(error.cause(), SpawnError::Cause::kException);
  EXPECT_EQ(error.type_name(), "int");
}

TEST(Spawn, TellsHowAProcessEnded) {
  const SpawnError exited = failure_of([] { spawn(&exit_with, 1, SpawnOptions(), 7); });
  EXPECT_EQ(exited.cause(), SpawnError::Cause::kEnd);
  EXPECT_EQ(exited.end(), ProcessEnd::exited(7));
  EXPECT_EQ(exited.code(), ErrorCode::kAborted);
  EXPECT_EQ(exited.message(),
            absl::StrCat("spawned process 0 (pid ", exited.pid(), ") exited with code 7"));

  const SpawnError killed = failure_of([] { spawn(&raise_signal, 1, SpawnOptions(), SIGKILL); });
  EXPECT_EQ(killed.end(), ProcessEnd::signalled(SIGKILL));
  EXPECT_THAT(killed.what(), HasSubstr("was ended by SIGKILL"));

  const SpawnError aborted = failure_of([] { spawn(&call_terminate, 1); });
  EXPECT_EQ(aborted.end(), ProcessEnd::signalled(SIGABRT));

  EXPECT_NO_THROW(spawn(&exit_with, 1, SpawnOptions(), 0));
}

TEST(Spawn, TheFirstFailureEndsTheOthers) {
  for (const int which : {0, 2}) {
    const ProcessContext processes = start_processes(&one_throws, 3, SpawnOptions(), which);
    const std::vector<pid_t> pids = processes.pids();
    EXPECT_THAT(pids, SizeIs(3));
    const SpawnError error = failure_of([&] { processes.join(); });
    EXPECT_EQ(error.rank(), which);
    EXPECT_EQ(error.pid(), pids.at(static_cast<std::size_t>(which)));
    EXPECT_EQ(error.code(), ErrorCode::kOutOfRange);
    for (const pid_t pid : pids) EXPECT_FALSE(is_running(pid));
    // Again.
    EXPECT_EQ(failure_of([&] { processes.join(0ms); }).rank(), which);
  }
}

TEST(Spawn, TheFirstFailureEndsTheOthersThoughNobodyWaits) {
  const ProcessContext processes = start_processes(&one_throws, 3, SpawnOptions(), 1);
  for (const pid_t pid : processes.pids()) EXPECT_EVENTUALLY(is_running(pid), false);
  EXPECT_THROW(processes.join(), SpawnError);
}

TEST(Spawn, KillsThoseThatDoNotEndWhenToldTo) {
  const TemporaryFolder folder;
  SpawnOptions options;
  options.grace = 50ms;
  const ProcessContext processes =
      start_processes(&ignore_and_one_throws, 3, options, 3, folder.file(""));
  EXPECT_EQ(failure_of([&] { processes.join(); }).rank(), 0);
  for (const pid_t pid : processes.pids()) EXPECT_FALSE(is_running(pid));
}

TEST(Spawn, JoinWaitsNoLongerThanItIsTold) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const ProcessContext processes = start_processes(&wait_for_pipe, 2, SpawnOptions(), pipe);
  EXPECT_FALSE(processes.join(0ms));
  EXPECT_FALSE(processes.join(20ms));
  const int release = ::open(pipe.c_str(), O_RDWR);
  EXPECT_TRUE(processes.join(kJobPatience));
  EXPECT_TRUE(processes.join());
  ::close(release);
}

TEST(Spawn, TerminateIsNoFailure) {
  const ProcessContext processes = start_processes(&wait_for_ever, 2);
  processes.terminate();
  processes.terminate();
  EXPECT_TRUE(processes.join());
}

TEST(Spawn, TheEndOfTheContextWaitsForProcessesButForDaemons) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::atomic<bool> is_released = false;
  std::thread release;
  {
    const ProcessContext processes = start_processes(&wait_for_pipe, 1, SpawnOptions(), pipe);
    release = std::thread([&] {
      // Returns when the process reads.
      const int number = ::open(pipe.c_str(), O_WRONLY);
      is_released = true;
      ::close(number);
    });
  }
  EXPECT_TRUE(is_released);
  release.join();

  SpawnOptions daemons;
  daemons.kind = SpawnOptions::Kind::kDaemon;
  std::vector<pid_t> pids;
  {
    const ProcessContext processes = start_processes(&wait_for_ever, 2, daemons);
    pids = processes.pids();
  }
  for (const pid_t pid : pids) EXPECT_FALSE(is_running(pid));
}

TEST(Spawn, AnExceptionOfTheParentEndsTheProcesses) {
  std::vector<pid_t> pids;
  try {
    const ProcessContext processes = start_processes(&wait_for_ever, 2);
    pids = processes.pids();
    throw std::runtime_error("of the parent");
  } catch (const std::runtime_error&) {
  }
  EXPECT_THAT(pids, SizeIs(2));
  for (const pid_t pid : pids) EXPECT_FALSE(is_running(pid));
}

TEST(Spawn, ProcessesMaySpawnButDaemonsMayNot) {
  EXPECT_NO_THROW(spawn(&spawn_nothing, 2));
  SpawnOptions daemons;
  daemons.kind = SpawnOptions::Kind::kDaemon;
  const SpawnError error = failure_of([&] { spawn(&spawn_nothing, 1, daemons); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.what(), HasSubstr("daemon"));
}

TEST(Spawn, LeavesNothing) {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(all, std::filesystem::directory_iterator());
  };
  spawn(&do_nothing, 1);
  const auto before = descriptors();
  for (int round = 0; round < 2; ++round) {
    spawn(&do_nothing, 3);
    failure_of([] { spawn(&exit_with, 2, SpawnOptions(), 3); });
  }
  EXPECT_EQ(descriptors(), before);
  // No child, neither running nor ended.
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Spawn, OutlivesTheThreadThatCalledIt) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::unique_ptr<ProcessContext> processes;
  std::thread([&] {
    processes =
        std::make_unique<ProcessContext>(start_processes(&wait_for_pipe, 1, SpawnOptions(), pipe));
  }).join();
  const int release = ::open(pipe.c_str(), O_WRONLY);
  ::close(release);
  EXPECT_TRUE(processes->join(kJobPatience));
}

TEST(Spawn, WorksBesideThreadsAndAWorker) {
  WorkerOptions options;
  options.name = "parent";
  options.methods.add<&twice>();
  options.init_method = "tcp://127.0.0.1:0?rank=0&world_size=1";
  Worker worker = init_rpc(options);
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!is_over) {
        EXPECT_EQ(worker.peer("parent").call<&twice>(4), 8);
        const std::string memory(10000, 'x');
        EXPECT_EQ(memory.back(), 'x');
      }
    });
  }
  for (int round = 0; round < 2; ++round) EXPECT_NO_THROW(spawn(&do_nothing, 4));
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  worker.shutdown();
}

TEST(Spawn, ProcessesFindEachOtherByTheirEnvironment) {
  EXPECT_NO_THROW(spawn(&call_all_others, 3, SpawnOptions(), 3));
}

TEST(Spawn, ThereMayBeSeveral) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([i] {
      EXPECT_EQ(failure_of([i] { spawn(&exit_with, 3, SpawnOptions(), 10 + i); }).end(),
                ProcessEnd::exited(10 + i));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Spawn, RefusesWhatCannotBe) {
  const auto code_of = [](int nprocs, const std::function<void(SpawnOptions&)>& change) {
    SpawnOptions options;
    change(options);
    try {
      spawn(&do_nothing, nprocs, options);
    } catch (const SpawnError&) {
      return ErrorCode::kUnknown;
    } catch (const RpcError& error) {
      return error.code();
    }
    return ErrorCode::kOk;
  };
  const auto kNothing = [](SpawnOptions&) {};
  EXPECT_EQ(code_of(0, kNothing), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(-1, kNothing), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(5000, kNothing), ErrorCode::kInvalidArgument);
  using Options = SpawnOptions;
  const std::vector<std::function<void(SpawnOptions&)>> mistakes = {
      [](Options& options) { options.grace = -1ms; },
      [](Options& options) {
        options.environment = {{"A=B", "c"}};
      },
      [](Options& options) {
        options.environment = {{"", "c"}};
      },
      [](Options& options) { options.nodes = 0; },
      [](Options& options) { options.node_rank = 1; },
      [](Options& options) { options.master_port = 70000; },
      [](Options& options) { options.nodes = 2; },
      [](Options& options) { options.master_addr.clear(); },
  };
  for (const auto& mistake : mistakes) EXPECT_EQ(code_of(1, mistake), ErrorCode::kInvalidArgument);

  ::signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(code_of(1, kNothing), ErrorCode::kFailedPrecondition);
  ::signal(SIGCHLD, SIG_DFL);
}

TEST(Spawn, NoticesAMainThatDoesNotComeToIt) {
  SpawnOptions options;
  options.environment = {{"SINEW_TEST_RETURNS_EARLY", "1"}};
  const SpawnError error = failure_of([&] { spawn(&do_nothing, 2, options); });
  EXPECT_THAT(error.what(), HasSubstr("before main() called init_launch()"));
}

TEST(SpawnedProgram, NeedsInitLaunch) {
  EXPECT_THAT(run_program({own_path(), "--drive-unready", "unready"}),
              HasSubstr("call sinew::init_launch(argc, argv) first in main()"));
}

TEST(SpawnedProgram, AForeignVariableIsNoTask) {
  for (const char* value :
       {"SINEW_SPAWN=0,normal", "SINEW_SPAWN=0,strange", "SINEW_SPAWN=x", "SINEW_SPAWN="}) {
    ChildProcess program({own_path(), "--drive", "unready"}, {value});
    EXPECT_EQ(program.finish(), 1) << value;
  }
}

TEST(Spawn, PrefixesWholeLines) {
  const std::string output = run_program({own_path(), "--drive", "lines"});
  std::vector<int> next(3, 0);
  std::set<int> without_end;
  const std::vector<std::string> lines = absl::StrSplit(output.substr(0, output.size() - 1), '\n');
  EXPECT_THAT(lines, SizeIs(3 * 41));
  for (const std::string& line : lines) {
    ASSERT_EQ(line.substr(0, 6), "[rank ") << line;
    const int rank = line.at(6) - '0';
    ASSERT_TRUE(rank >= 0 && rank < 3) << line;
    const std::string prefix = absl::StrCat("[rank ", rank, "] ");
    if (line == prefix + "no end") {
      without_end.insert(rank);
      continue;
    }
    EXPECT_EQ(line, absl::StrCat(prefix, next[static_cast<std::size_t>(rank)]++, " ",
                                 std::string(300, static_cast<char>('a' + rank))));
  }
  EXPECT_EQ(next, (std::vector<int>{40, 40, 40}));
  EXPECT_THAT(without_end, SizeIs(3));
}

TEST(Spawn, NoneOutlivesAParentThatIsKilled) {
  for (const auto& [what, count] : {std::pair("announce", 3), std::pair("nested", 4)}) {
    const TemporaryFolder folder;
    ChildProcess program({own_path(), "--drive", what, folder.file("")});
    const std::vector<pid_t> pids =
        eventual_value([&] { return announced(folder.file("")); }, SizeIs(count));
    ASSERT_THAT(pids, SizeIs(count));
    for (const pid_t pid : pids) EXPECT_TRUE(is_running(pid));
    program.signal(SIGKILL);
    for (const pid_t pid : pids) EXPECT_TRUE(eventually([&] { return !is_running(pid); })) << what;
  }
}

TEST(Spawn, NoneOutlivesAParentThatIsKilledWhileItStartsThem) {
  for (std::size_t round = 0; round < 6; ++round) {
    const TemporaryFolder folder;
    const std::string mark = absl::StrCat("SINEW_TEST_MARK=", ::getpid(), "-", round);
    ChildProcess program({own_path(), "--drive", "storm", folder.file("")}, {mark});
    // Itself and some of those that it starts, which have come no further than to be there.
    ASSERT_TRUE(eventually([&] { return count_with(mark) > 1 + round; }));
    program.signal(SIGKILL);
    EXPECT_TRUE(eventually([&] { return count_with(mark) == 0; }));
  }
}

}  // namespace
}  // namespace sinew::testing

int main(int argc, char** argv) {
  if (std::getenv("SINEW_TEST_RETURNS_EARLY") != nullptr) return 0;
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode != "--drive-unready") sinew::init_launch(argc, argv);
  if (mode == "--drive" || mode == "--drive-unready") {
    return sinew::testing::drive(argc > 2 ? argv[2] : "", argc > 3 ? argv[3] : "");
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
