// How tensors travel between processes of this host: what arrives is what was sent, whatever
// becomes of the sender's variable and of the sender. The test is a worker itself, named "test".

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::RpcError;
using sinew::Worker;
using sinew::testing::ChildProcess;
using sinew::testing::eventually;
using ::testing::StartsWith;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kKibi = 1 << 10;
constexpr std::int64_t kMebi = 1 << 20;

class Planes : public ::testing::Test {
 protected:
  void TearDown() override {
    if (self_.valid()) self_.shutdown({false, 60s, false});
  }

  void start(bool same_host = true) {
    sinew::WorkerOptions options;
    options.name = "test";
    options.methods = testapp::methods();
    options.init_method = "file://" + folder_.file("meet");
    options.same_host = same_host;
    self_ = sinew::init_rpc(options);
  }
  std::unique_ptr<ChildProcess> spawn(const std::string& more = "",
                                      std::vector<std::string> through = {}) {
    through.emplace_back(SINEW_TEST_WORKER);
    auto child = std::make_unique<ChildProcess>(through);
    const std::string answer =
        child->ask(absl::StrCat("start name=other init=file://", folder_.file("meet"), " ", more));
    EXPECT_THAT(answer, StartsWith("ok "));
    EXPECT_TRUE(eventually([&] { return knows_other(); }));
    return child;
  }

  bool knows_other() const {
    const std::vector<sinew::WorkerInfo> workers = self_.workers();
    return std::any_of(workers.begin(), workers.end(),
                       [](const sinew::WorkerInfo& worker) { return worker.name == "other"; });
  }

  bool push(std::int64_t size, std::int64_t seed) {
    return self_.peer("other").call<&testapp::has_pattern>(testapp::make_pattern(size, seed), seed);
  }
  bool pull(std::int64_t size, std::int64_t seed) {
    return testapp::has_pattern(self_.peer("other").call<&testapp::make_pattern>(size, seed), seed);
  }
  std::int64_t fetched_here() { return self_.counters()["rpc.plane_fetched_tensors"]; }
  std::int64_t fetched_there() {
    return self_.peer("other").call<&testapp::counter_value>("rpc.plane_fetched_tensors");
  }
  /// The ends find out about planes once they are connected.
  void await_planes() {
    EXPECT_TRUE(eventually([&] {
      EXPECT_TRUE(push(kMebi, 1));
      EXPECT_TRUE(pull(kMebi, 2));
      return fetched_here() > 0 && fetched_there() > 0;
    }));
  }

  const sinew::testing::TemporaryFolder folder_;
  Worker self_;
};

TEST_F(Planes, LargeTensorsAreFetchedBothWays) {
  start();
  const auto other = spawn();
  await_planes();
  for (const std::int64_t size : {0L, 1L, 4 * kKibi, 65 * kKibi, kMebi + 1, 20 * kMebi}) {
    EXPECT_TRUE(push(size, size)) << size;
    EXPECT_TRUE(pull(size, size)) << size;
  }
  EXPECT_EQ(self_.counters()["rpc.plane_failures"], 0);
}

TEST_F(Planes, SendersMayDropTheirVariablesAtOnce) {
  start();
  const auto other = spawn();
  await_planes();
  std::mt19937 random(7);
  std::deque<sinew::Future<bool>> calls;
  for (int i = 0; i < 300; ++i) {
    const std::int64_t size = 1 + static_cast<std::int64_t>(random() % (3 * kMebi));
    // Its memory is likely to be that of the tensors before.
    at::Tensor tensor = testapp::make_pattern(size, i);
    calls.push_back(self_.peer("other").async<&testapp::has_pattern>(tensor, i));
    tensor.reset();
    if (calls.size() > 20) {
      EXPECT_TRUE(calls.front().wait());
      calls.pop_front();
    }
  }
  for (const auto& call : calls) EXPECT_TRUE(call.wait());
}

TEST_F(Planes, ViewsArriveWithoutTheRestOfTheirStorage) {
  start();
  const auto other = spawn();
  await_planes();
  const at::Tensor whole = testapp::make_pattern(8 * kMebi, 5);
  const at::Tensor view = whole.narrow(0, 3 * kMebi + 77, kMebi);
  EXPECT_TRUE(at::equal(self_.peer("other").call<&testapp::echo_tensor>(view), view));
  const at::Tensor transposed = whole.view({4 * kKibi, 2 * kKibi}).t();
  EXPECT_TRUE(at::equal(self_.peer("other").call<&testapp::echo_tensor>(transposed), transposed));
  const at::Tensor scattered = whole.view({4 * kKibi, 2 * kKibi}).slice(1, 0, 2 * kKibi, 2);
  EXPECT_TRUE(at::equal(self_.peer("other").call<&testapp::echo_tensor>(scattered), scattered));
}

// What the victim had sent when it died is whole, and what is not whole is an error.
TEST_F(Planes, TheOwnerMayDieInTheMiddleOfACopy) {
  start();
  for (int round = 0; round < 6; ++round) {
    const auto victim = spawn();
    await_planes();
    std::vector<sinew::Future<at::Tensor>> calls;
    for (int i = 0; i < 12; ++i) {
      calls.push_back(self_.peer("other").async<&testapp::make_pattern>(8 * kMebi, i));
    }
    // Any moment will do.
    std::this_thread::sleep_for(std::chrono::milliseconds(7 * round));
    victim->signal(SIGKILL);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      try {
        EXPECT_TRUE(testapp::has_pattern(calls[i].wait_for(50s), static_cast<std::int64_t>(i)));
      } catch (const RpcError& error) {
        EXPECT_EQ(error.code(), sinew::ErrorCode::kUnavailable) << error.what();
      }
    }
    EXPECT_TRUE(eventually([&] { return !knows_other(); }));
  }
}

TEST_F(Planes, TheReceiverMayDieInTheMiddleOfACopy) {
  start();
  const auto victim = spawn();
  await_planes();
  std::vector<sinew::Future<bool>> calls;
  for (int i = 0; i < 12; ++i) {
    calls.push_back(
        self_.peer("other").async<&testapp::has_pattern>(testapp::make_pattern(8 * kMebi, i), i));
  }
  victim->signal(SIGKILL);
  for (const auto& call : calls) {
    try {
      EXPECT_TRUE(call.wait_for(50s));
    } catch (const RpcError& error) {
      EXPECT_EQ(error.code(), sinew::ErrorCode::kUnavailable) << error.what();
    }
  }
}

TEST_F(Planes, EitherEndMayDoWithout) {
  start();
  const auto other = spawn("same_host=0");
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(push(2 * kMebi, i));
    EXPECT_TRUE(pull(2 * kMebi, i));
  }
  EXPECT_EQ(fetched_here(), 0);
  EXPECT_EQ(fetched_there(), 0);
}

// As in a container: the number that the process has for itself is another one's here.
TEST_F(Planes, AnotherNamespaceOfProcessesLeavesGrpc) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes namespaces everywhere";
  start();
  const auto other = spawn("", {"/usr/bin/unshare", "--pid", "--fork", "--kill-child"});
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(push(2 * kMebi, i));
    EXPECT_TRUE(pull(2 * kMebi, i));
  }
  EXPECT_EQ(fetched_here(), 0);
  EXPECT_EQ(fetched_there(), 0);
}

}  // namespace
