// Processes that exit while their worker works, that fork, and that get too little of the system.
// The test is a worker itself, named "test".

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ATen/ops/full.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

namespace testlife {
// Served by the other processes only.
inline int leave(int code) { return code; }
inline int note(const std::string&) { return 0; }
}  // namespace testlife

SINEW_METHOD(testlife::leave, testlife::note);

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::Worker;
using sinew::testing::ChildProcess;
using sinew::testing::error_of;
using sinew::testing::eventually;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

namespace {

std::unique_ptr<ChildProcess> new_process() {
  return std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_LIFE_WORKER});
}

/// A world of one, for a process that may be another user's.
std::string start_alone(ChildProcess& process, const std::string& name) {
  return process.ask(absl::StrCat("start ", name, " tcp://127.0.0.1:", sinew::testing::free_port(),
                                  "?rank=0&world_size=1"));
}

/// Open membership over a file: the test first, then a process with a worker named "child".
class Life : public ::testing::Test {
 protected:
  void TearDown() override {
    if (self_.valid()) self_.shutdown({false, 60s, false});
  }

  void start_both() {
    const std::string meet = "file://" + folder_.file("meet");
    sinew::WorkerOptions options;
    options.name = "test";
    options.methods = testapp::methods();
    options.init_method = meet;
    self_ = sinew::init_rpc(options);
    child_ = new_process();
    ASSERT_THAT(child_->ask("start child " + meet), StartsWith("ok "));
  }

  const sinew::testing::TemporaryFolder folder_;
  Worker self_;
  std::unique_ptr<ChildProcess> child_;
};

// ---- exit()

/// Threads that call the child until this ends.
class Callers {
 public:
  explicit Callers(const Worker& worker) {
    for (int i = 0; i < 3; ++i) {
      threads_.emplace_back([this, worker, i] {
        const at::Tensor sent = at::full({i == 0 ? 300000 : 10}, 1.5);
        while (!stop_) {
          try {
            worker.peer("child").call<&testapp::echo_tensor>(sent);
            worker.peer("child").call<&testlife::note>(std::to_string(i));
          } catch (const RpcError&) {
            std::this_thread::yield();
          }
        }
      });
    }
  }
  ~Callers() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

class LifeExit : public Life, public ::testing::WithParamInterface<const char*> {};

TEST_P(LifeExit, EndsWithItsStatusWhateverThreadsDo) {
  start_both();
  const Callers callers(self_);
  ASSERT_EQ(child_->ask("call test 4"), "ok ");
  if (GetParam() == std::string("handler")) {
    self_.peer("child").async<&testlife::leave>(7);
  } else {
    child_->send(GetParam());
  }
  // It does not wait for anybody; the bound is for a busy machine.
  EXPECT_EQ(child_->finish(30s), 7);
}
INSTANTIATE_TEST_SUITE_P(Ways, LifeExit,
                         ::testing::Values("exit main 7", "exit thread 7", "exit static 7",
                                           "return 7", "handler"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) c = c == ' ' ? '_' : c;
                           return name;
                         });

TEST_F(Life, ExitOfAWorkerThatNobodyCallsEndsWithItsStatus) {
  start_both();
  ASSERT_EQ(child_->ask("add test"), "ok 3");
  child_->send("return 5");
  EXPECT_EQ(child_->finish(60s), 5);
}

TEST_F(Life, ADestructorOfSomethingStaticMayStartAWorker) {
  const auto process = new_process();
  ASSERT_THAT(start_alone(*process, "alone"), StartsWith("ok "));
  ASSERT_EQ(process->ask("add alone"), "ok 3");
  process->send("exit again 7");
  EXPECT_EQ(process->finish(60s), 7);
}

TEST_F(Life, ExitWhileWorkersAreStartedEndsWithItsStatus) {
  for (const char* way : {"late", "restless", "restless", "restless"}) {
    const auto process = new_process();
    ASSERT_THAT(start_alone(*process, "alone"), StartsWith("ok "));
    process->send(absl::StrCat("exit ", way, " 7"));
    ASSERT_EQ(process->finish(60s), 7) << way;
  }
}

// ---- fork()

TEST_F(Life, ForkedChildGetsAnErrorAtOnceAndLeavesTheParentAlone) {
  start_both();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(child_->ask("fork test 3"), "ok  status 3 parent goes on");
  }
  EXPECT_EQ(child_->ask("add test"), "ok 3");
  EXPECT_EQ(self_.peer("child").call<&testapp::add>(1, 2), 3);
}

TEST_F(Life, ForkedChildGetsAnErrorAlsoWhenTheWorkerWasShutDownBefore) {
  start_both();
  EXPECT_EQ(child_->ask("fork_late"), "ok status 3");
}

// ---- Too little of the system

class LifeLimits : public Life {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become a user without other processes";
  }

  /// The test and a process with a worker named "child", which has the limit.
  void start_world_of_two(const std::string& limit) {
    const std::string meet = absl::StrCat("tcp://127.0.0.1:", sinew::testing::free_port());
    child_ = new_process();
    ASSERT_EQ(child_->ask(limit), "ok ");
    child_->send("start child " + meet + "?rank=1&world_size=2");
    sinew::WorkerOptions options;
    options.name = "test";
    options.methods = testapp::methods();
    options.init_method = meet + "?rank=0&world_size=2";
    self_ = sinew::init_rpc(options);
    ASSERT_THAT(child_->receive(), StartsWith("ok "));
  }
};

TEST_F(LifeLimits, FewThreadsAreAnErrorAndNeverAHang) {
  bool enough = false;
  for (const int threads : {3, 7, 9, 11, 14, 17, 18, 30, 80}) {
    const auto process = new_process();
    ASSERT_EQ(process->ask(absl::StrCat("limit threads ", threads)), "ok ");
    const std::string answer = start_alone(*process, "alone");
    EXPECT_THAT(answer, AnyOf(StartsWith("ok "),
                              AllOf(StartsWith("error RESOURCE_EXHAUSTED a worker needs "),
                                    HasSubstr(absl::StrCat("is ", threads, ";")))))
        << threads;
    enough = answer.rfind("ok ", 0) == 0;
    if (enough) {
      EXPECT_EQ(process->ask("add alone"), "ok 3");
    }
    if (threads == 11) {
      EXPECT_FALSE(enough);
    }
  }
  EXPECT_TRUE(enough);
}

TEST_F(LifeLimits, CallsEndWhereNoFurtherThreadCanBeStarted) {
  // So many that the worker starts: gRPC has one for each CPU.
  const int threads = 17 + std::clamp(::get_nprocs_conf(), 2, 32);
  ASSERT_NO_FATAL_FAILURE(start_world_of_two(absl::StrCat("limit threads ", threads)));
  const at::Tensor large = at::full({4 << 20}, 1.5);
  std::vector<sinew::Future<at::Tensor>> copies;
  std::vector<sinew::Future<int>> nested;
  for (int i = 0; i < 8; ++i) {
    copies.push_back(self_.peer("child").async<&testapp::echo_tensor>(large));
  }
  // Each waits within its method, in a thread.
  const auto mine = sinew::share_rref(self_, std::make_shared<testapp::Counter>(0));
  for (int i = 0; i < 40; ++i) {
    nested.push_back(self_.peer("child").async<&testapp::add_to>(mine, 1));
  }
  for (const auto& copy : copies) EXPECT_EQ(copy.wait().numel(), large.numel());
  int counted = 0;
  for (const auto& call : nested) {
    try {
      call.wait();
      ++counted;
    } catch (const RpcError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
    }
  }
  EXPECT_GT(counted, 0);
  EXPECT_EQ(self_.peer("child").call<&testapp::add>(1, 2), 3);
  EXPECT_EQ(child_->ask("add test"), "ok 3");
}

TEST_F(Life, FewFilesAreAnErrorAndNeverAHang) {
  bool enough = false;
  for (const int files : {4, 6, 7, 9, 14, 15, 30}) {
    const auto process = new_process();
    ASSERT_EQ(process->ask(absl::StrCat("limit files ", files)), "ok ");
    const std::string answer = start_alone(*process, "alone");
    EXPECT_THAT(answer, AnyOf(StartsWith("ok "),
                              AllOf(StartsWith("error RESOURCE_EXHAUSTED a worker needs 12"),
                                    HasSubstr(absl::StrCat("is ", files)))))
        << files;
    enough = answer.rfind("ok ", 0) == 0;
    if (enough) {
      EXPECT_EQ(process->ask("add alone"), "ok 3");
    }
  }
  EXPECT_TRUE(enough);
}

}  // namespace
