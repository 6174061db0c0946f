// Workers in processes whose control groups and resource limits leave them less than the machine
// has. The test is a worker itself, named "test", without such limits.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ATen/ops/full.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/control_group.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/raw_peer.h"
#include "sinew/tests/support/temporary_folder.h"

namespace testlife {
// Served by the other processes only.
inline int compute(int rounds) { return rounds; }
}  // namespace testlife

SINEW_METHOD(testlife::compute);

using sinew::Future;
using sinew::RpcError;
using sinew::Worker;
using sinew::testing::ChildProcess;
using sinew::testing::ControlGroup;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

class Limits : public ::testing::Test {
 protected:
  // What it says would decide.
  void SetUp() override { ::unsetenv("OMP_NUM_THREADS"); }
  void TearDown() override {
    if (self_.valid()) self_.shutdown({false, 60s, false});
  }

  void start_test(bool same_host) {
    sinew::WorkerOptions options;
    options.name = "test";
    options.methods = testapp::methods();
    options.init_method = meet_;
    options.same_host = same_host;
    self_ = sinew::init_rpc(options);
  }
  /// A process in the group, which has no worker yet.
  static std::unique_ptr<ChildProcess> process_in(const ControlGroup& group) {
    return std::make_unique<ChildProcess>(group.entered_by({SINEW_LIFE_WORKER}));
  }
  std::int64_t counter_of_child(const std::string& name) {
    return self_.peer("child").call<&testapp::counter_value>(name);
  }

  /// A worker in the group computes with one thread.
  void expect_one_core(const ControlGroup& group) {
    const auto child = process_in(group);
    start_test(true);
    ASSERT_THAT(child->ask("start child " + meet_), StartsWith("ok "));
    self_.wait_for("child", 60s);
    EXPECT_EQ(self_.peer("child").call<&testlife::compute>(1), 1);
    EXPECT_EQ(counter_of_child("rpc.limit_cores"), 1);
    child->signal(SIGKILL);
  }

  const sinew::testing::TemporaryFolder folder_;
  const std::string meet_ = "file://" + folder_.file("meet");
  Worker self_;
};

// ---- Memory

struct MemoryCase {
  std::int64_t group_mib;
  std::int64_t own_mib;
  bool same_host;
};

class LimitedMemory : public Limits, public ::testing::WithParamInterface<MemoryCase> {};

TEST_P(LimitedMemory, MessagesOfManySizesFit) {
  const ControlGroup group("memory");
  if (!group.obstacle().empty()) GTEST_SKIP() << group.obstacle();
  group.limit_memory(static_cast<std::size_t>(GetParam().group_mib * kMiB));
  const auto child = process_in(group);
  ASSERT_EQ(child->ask(absl::StrCat("hold ", GetParam().own_mib)), "ok ");
  start_test(GetParam().same_host);
  ASSERT_THAT(child->ask("start child " + meet_), StartsWith("ok "));
  self_.wait_for("child", 60s);

  std::minstd_rand random(3);
  std::deque<Future<at::Tensor>> calls;
  for (int i = 0; i < 80; ++i) {
    const auto size = static_cast<std::int64_t>(random() % (63 * kMiB)) + kMiB;
    calls.push_back(
        self_.peer("child").async<&testapp::echo_tensor>(at::full({size}, i % 100, at::kByte)));
    if (calls.size() < 2) continue;
    const at::Tensor echo = calls.front().wait();
    ASSERT_EQ(echo.max().item<int>(), (i - 1) % 100) << "call " << i - 1;
    calls.pop_front();
  }
  calls.clear();
  EXPECT_EQ(counter_of_child("rpc.limit_memory_bytes"), GetParam().group_mib * kMiB);
  EXPECT_EQ(counter_of_child("rpc.receive_pool_max_idle_bytes"), GetParam().group_mib * kMiB / 8);
  EXPECT_LE(counter_of_child("rpc.receive_pool_idle_bytes"), GetParam().group_mib * kMiB / 8);
  child->signal(SIGKILL);
}
INSTANTIATE_TEST_SUITE_P(All, LimitedMemory,
                         ::testing::Values(MemoryCase{512, 0, true}, MemoryCase{512, 0, false},
                                           MemoryCase{1024, 500, true},
                                           MemoryCase{1024, 500, false}));

TEST_F(Limits, ALimitOfMemoryThatIsRaisedIsNoticed) {
  const ControlGroup group("memory");
  if (!group.obstacle().empty()) GTEST_SKIP() << group.obstacle();
  group.limit_memory(512 * kMiB);
  const auto child = process_in(group);
  start_test(true);
  ASSERT_THAT(child->ask("start child " + meet_), StartsWith("ok "));
  self_.wait_for("child", 60s);
  EXPECT_EQ(counter_of_child("rpc.receive_pool_max_idle_bytes"), 64 * kMiB);
  group.limit_memory(768 * kMiB);
  EXPECT_TRUE(sinew::testing::eventually(
      [&] { return counter_of_child("rpc.receive_pool_max_idle_bytes") == 96 * kMiB; }));
  child->signal(SIGKILL);
}

// With the room of a member each of them could have 256 MiB lie there.
TEST_F(Limits, StrangersDoNotFillAGroup) {
  const ControlGroup group("memory");
  if (!group.obstacle().empty()) GTEST_SKIP() << group.obstacle();
  group.limit_memory(300 * kMiB);
  const auto child = process_in(group);
  const std::string started = child->ask("start child " + meet_);
  ASSERT_THAT(started, StartsWith("ok "));
  const std::string address = started.substr(3);
  start_test(true);
  self_.wait_for("child", 60s);
  sinew::proto::Envelope envelope;
  envelope.mutable_call()->set_id(1);
  envelope.mutable_call()->set_method("testlife::compute");
  envelope.mutable_call()->add_arguments()->set_binary(std::string(60 * kMiB, 'x'));
  std::vector<std::unique_ptr<sinew::testing::RawPeer>> strangers;
  for (std::uint64_t i = 0; i < 6; ++i) {
    strangers.push_back(std::make_unique<sinew::testing::RawPeer>(
        sinew::WorkerInfo{absl::StrCat("stranger", i), -1, {}}));
    ASSERT_TRUE(strangers.back()->connect(address).ok());
  }
  for (const auto& stranger : strangers) {
    stranger->send(sinew::internal::FrameKind::kRequest, envelope);
  }
  for (const auto& stranger : strangers) {
    const auto reply = stranger->reply(1);
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->error().code(), static_cast<int>(sinew::ErrorCode::kResourceExhausted));
  }
  EXPECT_EQ(self_.peer("child").call<&testlife::compute>(1), 1);
  child->signal(SIGKILL);
}

// ---- Threads

TEST_F(Limits, FewThreadsAreSharedOrRefusedWithASentence) {
  const ControlGroup group("pids");
  if (!group.obstacle().empty()) GTEST_SKIP() << group.obstacle();
  start_test(true);
  bool worked = false;
  for (const int most : {8, 16, 18, 20, 22, 26, 40, 80}) {
    group.limit_threads(most);
    const auto child = process_in(group);
    const std::string answer = child->ask("start child " + meet_);
    if (answer.rfind("ok ", 0) != 0) {
      EXPECT_THAT(answer, AllOf(StartsWith("error RESOURCE_EXHAUSTED a worker needs "),
                                HasSubstr(absl::StrCat("pids.max of the control group ",
                                                       group.name(), " is ", most, ", and "))))
          << most;
      child->signal(SIGKILL);
      continue;
    }
    worked = true;
    self_.wait_for("child", 60s);
    EXPECT_EQ(counter_of_child("rpc.limit_threads"), most);
    // OpenMP ends the process when it cannot start a thread.
    std::vector<Future<int>> calls;
    for (int i = 0; i < 16; ++i) calls.push_back(self_.peer("child").async<&testlife::compute>(50));
    for (const Future<int>& call : calls) EXPECT_GE(call.wait(), 1) << most;
    child->signal(SIGKILL);
    EXPECT_TRUE(sinew::testing::eventually([&] { return self_.workers().size() == 1; }));
  }
  EXPECT_TRUE(worked);
}

TEST_F(Limits, AGroupWithHalfACoreComputesWithOneThread) {
  const ControlGroup group("cpu");
  if (!group.obstacle().empty()) GTEST_SKIP() << group.obstacle();
  group.limit_cores(0.5);
  expect_one_core(group);
}

TEST_F(Limits, ASetOfOneCpuIsOneCore) {
  const ControlGroup group("cpuset");
  if (!group.obstacle().empty()) GTEST_SKIP() << group.obstacle();
  group.limit_to_one_cpu();
  expect_one_core(group);
}

// ---- Files

class LimitedFiles : public Limits, public ::testing::WithParamInterface<bool> {
 protected:
  /// Empty if another worker gets into the job of the child.
  std::string why_not_in() {
    sinew::WorkerOptions options;
    options.name = absl::StrCat("peer", tried_++);
    options.init_method = at_port_;
    options.same_host = GetParam();
    options.join_timeout = 3s;
    try {
      peers_.push_back(sinew::init_rpc(options));
    } catch (const RpcError& error) {
      return error.what();
    }
    return "";
  }
  /// Why the last one was refused.
  std::string fill() {
    std::string why;
    while (why.empty() && tried_ < 64) why = why_not_in();
    EXPECT_THAT(why, HasSubstr("RLIMIT_NOFILE")) << "after " << tried_;
    return why;
  }
  static void limit(const ChildProcess& child, rlim_t files) {
    rlimit limits{};
    ASSERT_EQ(::prlimit(child.pid(), RLIMIT_NOFILE, nullptr, &limits), 0);
    limits.rlim_cur = std::min(limits.rlim_max, files);
    ASSERT_EQ(::prlimit(child.pid(), RLIMIT_NOFILE, &limits, nullptr), 0);
  }
  const Worker& peer(std::size_t number) const { return peers_[number]; }
  void TearDown() override {
    for (const Worker& peer : peers_) peer.shutdown({false, 60s, false});
  }

  const std::string at_port_ = absl::StrCat("tcp://127.0.0.1:", sinew::testing::free_port());

 private:
  std::vector<Worker> peers_;
  int tried_ = 0;
};

TEST_P(LimitedFiles, ALimitThatIsRaisedWhileItRunsIsNoticed) {
  const auto child = std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_LIFE_WORKER});
  ASSERT_EQ(child->ask("limit files 64"), "ok ");
  ASSERT_THAT(child->ask("start child " + at_port_ + "?rank=0"), StartsWith("ok "));
  const std::string why = fill();
  limit(*child, 1024);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(why_not_in(), "") << "was: " << why;
}

TEST_P(LimitedFiles, ALimitThatIsLoweredWhileItRunsIsNoticed) {
  const auto child = std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_LIFE_WORKER});
  ASSERT_THAT(child->ask("start child " + at_port_ + "?rank=0"), StartsWith("ok "));
  ASSERT_EQ(why_not_in(), "");
  limit(*child, 64);
  fill();
  EXPECT_EQ(peer(0).peer("child").call<&testapp::add>(1, 2), 3) << "who is in stays";
}
INSTANTIATE_TEST_SUITE_P(All, LimitedFiles, ::testing::Bool());

}  // namespace
