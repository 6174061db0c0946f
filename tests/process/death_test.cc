// A process of this host that has ended is known to have (docs/link.md, L7): what it held goes at
// once, whatever its lease. The test is a worker itself, named "test".

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::Worker;
using sinew::testing::ChildProcess;
using sinew::testing::error_of;
using sinew::testing::eventually;
using testapp::Counter;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

namespace {

/// The test, and a worker that is to die. It gives an address where nobody ever says anything, so
/// that nothing but the end of its process tells of its end before its lease does.
class Death : public ::testing::Test {
 protected:
  void SetUp() override {
    silent_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(::bind(silent_, any, size), 0);
    ASSERT_EQ(::listen(silent_, 64), 0);
    ASSERT_EQ(::getsockname(silent_, any, &size), 0);

    sinew::WorkerOptions options;
    options.name = "test";
    options.methods = testapp::methods();
    options.init_method = "file://" + folder_.file("meet");
    options.lease = 600s;
    options.heartbeat_interval = 1s;
    self_ = sinew::init_rpc(options);
    victim_ = std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
    ASSERT_THAT(victim_->ask(absl::StrCat(
                    "start name=victim init=file://", folder_.file("meet"),
                    " lease_ms=600000 beat_ms=1000 advertise=127.0.0.1:", ntohs(address.sin_port))),
                StartsWith("ok "));
    const auto own = sinew::share_rref(self_, std::make_shared<Counter>(1));
    self_.peer("victim").call<&testapp::keep>("it", own);
    ASSERT_TRUE(eventually([&] { return self_.counters()["rref.forks"] == 1; }));
    // Once tensors are fetched out of its memory, the kernel has said whose that is.
    ASSERT_TRUE(eventually([&] {
      self_.peer("victim").call<&testapp::make_pattern>(1 << 20, 1);
      return self_.counters()["rpc.plane_fetched_tensors"] > 0;
    }));
    pending_ = self_.peer("victim").async<&testapp::stall>();
    pending_.on_done(
        [this, peer = self_.peer("victim")](const auto&) { found_alive_ = peer.alive(); });
    ASSERT_TRUE(eventually([&] { return self_.peer("victim").call<&testapp::stalled>() == 1; }));
  }
  void TearDown() override {
    if (self_.valid()) self_.shutdown({false, 60s, false});
    ::close(silent_);
  }

  void expect_known_to_be_dead() {
    const RpcError error = error_of([&] { pending_.wait_for(60s); });
    EXPECT_TRUE(eventually([&] { return !found_alive_; })) << "by who hears that the call failed";
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_THAT(error.message(), HasSubstr("its process has ended"));
    EXPECT_TRUE(eventually([&] { return self_.counters()["rref.forks"] == 0; }));
    EXPECT_TRUE(eventually([&] { return self_.workers().size() == 1; }));
  }

  const sinew::testing::TemporaryFolder folder_;
  int silent_ = -1;
  Worker self_;
  std::unique_ptr<ChildProcess> victim_;
  sinew::Future<int> pending_;
  std::atomic<bool> found_alive_{true};
};

TEST_F(Death, KilledProcessGivesUpWhatItHeldAtOnce) {
  victim_->signal(SIGKILL);
  expect_known_to_be_dead();
}

TEST_F(Death, ChildThatKeepsTheSocketsOpenDoesNotKeepItAlive) {
  const std::string answer = victim_->ask("fork");
  absl::string_view text = answer;
  pid_t child = 0;
  ASSERT_TRUE(absl::ConsumePrefix(&text, "ok ") && absl::SimpleAtoi(text, &child)) << answer;
  victim_->signal(SIGKILL);
  expect_known_to_be_dead();
  EXPECT_EQ(::kill(child, SIGKILL), 0) << "it was there all the time";
}

TEST_F(Death, StoppedProcessIsNotDead) {
  victim_->signal(SIGSTOP);
  // Long enough for several looks.
  std::this_thread::sleep_for(4s);
  EXPECT_FALSE(pending_.done());
  EXPECT_EQ(self_.counters()["rref.forks"], 1);
  victim_->signal(SIGCONT);
  self_.peer("victim").call<&testapp::release>();
  EXPECT_EQ(pending_.wait(), 1);
}

}  // namespace
