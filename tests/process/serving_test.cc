// Servers of jobs whose other workers end, are killed, or have them end.

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::testing::ChildProcess;
using sinew::testing::eventually;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

namespace {

/// Whether it has a handler for SIGTERM.
bool catches_signals(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string word; status >> word;) {
    if (word != "SigCgt:") continue;
    std::uint64_t caught = 0;
    status >> std::hex >> caught;
    return (caught >> (SIGTERM - 1) & 1) != 0;
  }
  return false;
}

class Serving : public ::testing::Test {
 protected:
  enum class World { kFixed, kOpen };

  /// w0, w1, ...
  void start(int count, World world = World::kFixed) {
    for (int rank = 0; rank < count; ++rank) {
      children_.push_back(
          std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER}));
      const std::string place =
          world == World::kFixed ? absl::StrCat(" world=", count, " rank=", rank) : "";
      child(rank).send(absl::StrCat("start lease_ms=1500 name=w", rank, " init=file://",
                                    folder_.file("meet"), place));
    }
    for (const auto& each : children_) ASSERT_THAT(each->receive(), StartsWith("ok "));
    ASSERT_TRUE(eventually([&] {
      return child(0).ask("members").size() == std::string("ok").size() + 3u * children_.size();
    }));
  }
  /// Returns when a signal no longer ends the process.
  void serve(int rank) {
    child(rank).send("serve");
    EXPECT_TRUE(eventually([&] { return catches_signals(child(rank).pid()); }));
  }
  ChildProcess& child(int rank) { return *children_[static_cast<std::size_t>(rank)]; }

 private:
  const sinew::testing::TemporaryFolder folder_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
};

TEST_F(Serving, UntilThoseWhoWorkedHaveEnded) {
  start(3);
  child(1).send("serve");
  child(2).send("serve");
  EXPECT_EQ(child(0).ask("add w1"), "ok 3");
  EXPECT_EQ(child(0).ask("add w2"), "ok 3");
  EXPECT_EQ(child(0).ask("shutdown graceful"), "ok ");
  EXPECT_EQ(child(1).receive(), "ok job over");
  EXPECT_EQ(child(2).receive(), "ok job over");
  EXPECT_THAT(child(1).ask("state"), HasSubstr("left, does not run"));
}

TEST_F(Serving, ALostJobEndsItWithTheReason) {
  start(3);
  child(1).send("serve");
  child(2).send("serve");
  child(0).signal(SIGKILL);
  for (const int server : {1, 2}) {
    EXPECT_THAT(
        child(server).receive(),
        AllOf(StartsWith("error UNAVAILABLE"), HasSubstr("has no worker left to serve"),
              HasSubstr("worker 'w0' was lost"), ::testing::Not(HasSubstr("'w1' was lost"))));
  }
}

// One of those who worked has seen the job to its end.
TEST_F(Serving, ALossThatTheOthersWorkedOnWithoutIsNone) {
  start(3);
  child(2).send("serve");
  child(0).signal(SIGKILL);
  EXPECT_EQ(child(1).ask("add w2"), "ok 3");
  EXPECT_EQ(child(1).ask("shutdown graceful"), "ok ");
  EXPECT_EQ(child(2).receive(), "ok job over");
}

TEST_F(Serving, AShutdownWithoutALimitEndsWhenTheOthersAreLost) {
  start(2);
  child(0).send("shutdown graceful");
  child(1).signal(SIGKILL);
  EXPECT_EQ(child(0).receive(), "ok ");
}

TEST_F(Serving, ASignalHasItLeaveAFixedWorld) {
  start(4);
  for (const int server : {1, 2, 3}) serve(server);
  EXPECT_EQ(child(0).ask("add w1"), "ok 3");
  EXPECT_EQ(child(0).ask("add w2"), "ok 3");
  child(1).signal(SIGTERM);
  child(2).signal(SIGINT);
  for (const int server : {1, 2}) {
    EXPECT_EQ(child(server).receive(), "ok asked");
    EXPECT_EQ(child(server).finish(), 0);
  }
  // They are missed at once, and the others go on.
  EXPECT_TRUE(eventually([&] { return child(0).ask("members") == "ok w0 w3"; }));
  EXPECT_EQ(child(0).ask("add w3"), "ok 3");
  EXPECT_EQ(child(0).ask("shutdown graceful"), "ok ");
  EXPECT_EQ(child(3).receive(), "ok job over");
}

TEST_F(Serving, ASignalHasItSayGoodbyeInOpenMembership) {
  start(2, World::kOpen);
  EXPECT_EQ(child(0).ask("watch"), "ok ");
  serve(1);
  EXPECT_EQ(child(0).ask("add w1"), "ok 3");
  child(1).signal(SIGTERM);
  EXPECT_EQ(child(1).receive(), "ok asked");
  EXPECT_TRUE(eventually([&] { return child(0).ask("events") == "ok left:w1"; }));
  EXPECT_EQ(child(1).finish(), 0);
}

// The first one waits for a call that does not end.
TEST_F(Serving, ASecondSignalEndsTheProcess) {
  start(2, World::kOpen);
  serve(1);
  EXPECT_EQ(child(0).ask("begin s stall w1"), "ok ");
  EXPECT_TRUE(
      eventually([&] { return child(0).ask("counter rpc.client_active_calls") == "ok 1"; }));
  EXPECT_EQ(child(0).ask("add w1"), "ok 3");
  std::optional<int> status;
  // A signal that comes while another one is pending is none.
  for (int i = 0; i < 100 && !status.has_value(); ++i) {
    child(1).signal(SIGTERM);
    status = child(1).finish(50ms);
  }
  EXPECT_EQ(status, 128 + SIGTERM);
}

}  // namespace
