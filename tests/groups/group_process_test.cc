// Groups over real processes: members that are killed or stopped, starts over tcp://, file:// and
// workers, calls and groups in one process, strangers at the port.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::testing::ChildProcess;
using sinew::testing::free_port;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

namespace {

class GroupProcesses : public ::testing::Test {
 protected:
  /// Each rank's process.
  void start(int size) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(
          std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_GROUPS_WORKER}));
    }
  }
  ChildProcess& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }
  int size() const { return static_cast<int>(ranks_.size()); }
  std::string place(int rank) const { return absl::StrCat(" rank=", rank, " size=", size()); }

  /// All are asked at once, and answer that.
  void all(const std::string& command, const std::string& arguments,
           const ::testing::Matcher<std::string>& answer) {
    for (int number = 0; number < size(); ++number) {
      rank(number).send(absl::StrCat(command, place(number), arguments));
    }
    for (int number = 0; number < size(); ++number) {
      EXPECT_THAT(rank(number).receive(), answer) << "rank " << number;
    }
  }
  std::string tcp() const { return absl::StrCat(" init=tcp://127.0.0.1:", port_); }

  const int port_ = free_port();
  const sinew::testing::TemporaryFolder folder_;
  std::vector<std::unique_ptr<ChildProcess>> ranks_;
};

TEST_F(GroupProcesses, AKilledMemberFailsTheOthersAtOnceOverTcp) {
  start(3);
  all("group", tcp(), StartsWith("ok rank "));
  all("all_reduce", "", "ok 3");
  // Two are in the middle of an operation.
  rank(0).send("all_reduce count=100000");
  rank(1).send("all_reduce count=100000");
  rank(2).signal(SIGKILL);
  for (const int other : {0, 1}) {
    EXPECT_THAT(rank(other).receive(std::chrono::seconds(30)),
                AllOf(StartsWith("error UNAVAILABLE"), HasSubstr("rank 2 has ended")));
    EXPECT_THAT(rank(other).ask("all_reduce"), StartsWith("error FAILED_PRECONDITION"));
    EXPECT_THAT(rank(other).ask("destroy"), StartsWith("ok"));
  }
  // The rest goes on.
  ranks_.pop_back();
  all("group", tcp(), StartsWith("ok rank "));
  all("all_reduce", "", "ok 2");
}

// Some of what a rank waits for comes from those that are alive.
TEST_F(GroupProcesses, WhoIsWaitedForIsNotBlamedForAnother) {
  for (const int here : {0, 1}) {
    ranks_.clear();
    start(3);
    all("group", tcp(), StartsWith("ok rank "));
    rank(2).signal(SIGKILL);
    EXPECT_THAT(rank(here).ask("all_reduce"),
                AllOf(StartsWith("error UNAVAILABLE rank 2 has ended"),
                      Not(HasSubstr(absl::StrCat("rank ", 1 - here)))));
  }
}

// It takes the store along, where the reason stands.
TEST_F(GroupProcesses, WhoEndsSinceAnotherOneHasEndedIsNotBlamedInItsPlace) {
  start(3);
  all("group", tcp(), StartsWith("ok rank "));
  rank(2).signal(SIGKILL);
  rank(0).send("all_reduce dies=1");
  EXPECT_EQ(rank(0).finish(), 1);
  EXPECT_THAT(rank(1).ask("all_reduce"), StartsWith("error UNAVAILABLE rank 2 has ended"));
}

// Whoever it is; rank 0 takes the store along.
TEST_F(GroupProcesses, WhoEndsAfterADisagreementIsNotBlamedInItsPlace) {
  enum class Case { kCompared, kComparedBefore, kOneComesLate };
  for (const Case how : {Case::kCompared, Case::kComparedBefore, Case::kOneComesLate}) {
    for (int ends = 0; ends < 3; ++ends) {
      ranks_.clear();
      start(3);
      all("group", tcp(), StartsWith("ok rank "));
      if (how != Case::kCompared) {
        all("all_reduce", "", "ok 3");
        all("all_reduce", " count=5", "ok 3");
      }
      const int next = (ends + 1) % 3;
      const int late = (ends + 2) % 3;
      rank(next).send("all_reduce");
      if (how != Case::kOneComesLate) rank(late).send("all_reduce");
      // It finds it out.
      rank(ends).send("all_reduce dies=1 count=5");
      EXPECT_EQ(rank(ends).finish(), 1);
      if (how == Case::kOneComesLate) rank(late).send("all_reduce");
      for (const int other : {next, late}) {
        EXPECT_THAT(rank(other).receive(std::chrono::seconds(30)),
                    AllOf(StartsWith("error INVALID_ARGUMENT"), HasSubstr("do not agree")))
            << "rank " << ends << " ends, rank " << other << " comes, case "
            << static_cast<int>(how);
      }
    }
  }
}

// The rank that serves the store.
TEST_F(GroupProcesses, AKilledRankZeroFailsTheOthers) {
  start(3);
  all("group", tcp(), StartsWith("ok rank "));
  rank(1).send("all_reduce");
  rank(2).send("all_reduce");
  rank(0).signal(SIGKILL);
  for (const int other : {1, 2}) {
    EXPECT_THAT(rank(other).receive(std::chrono::seconds(30)), StartsWith("error UNAVAILABLE"));
  }
}

TEST_F(GroupProcesses, AStoppedMemberIsNamedWhenTheTimeIsOver) {
  start(3);
  all("group", tcp(), StartsWith("ok rank "));
  rank(1).signal(SIGSTOP);
  rank(0).send("all_reduce timeout_ms=4000");
  rank(2).send("all_reduce timeout_ms=4000");
  for (const int other : {0, 2}) {
    EXPECT_THAT(
        rank(other).receive(std::chrono::seconds(30)),
        AllOf(StartsWith("error DEADLINE_EXCEEDED"), HasSubstr("rank 1 has not come to it")));
  }
  rank(1).signal(SIGCONT);
  EXPECT_THAT(rank(1).ask("all_reduce"), AllOf(StartsWith("error"), HasSubstr("rank 1")));
}

// It writes to connections that were closed meanwhile.
TEST_F(GroupProcesses, AStoppedMemberThatGoesOnAmongTheDeadHearsOfIt) {
  start(3);
  all("group", tcp(), StartsWith("ok rank "));
  for (int number = 0; number < 3; ++number) {
    rank(number).send("all_reduce count=100000 rounds=1000000");
  }
  rank(1).signal(SIGSTOP);
  rank(0).signal(SIGKILL);
  rank(2).signal(SIGKILL);
  rank(1).signal(SIGCONT);
  // Which of the two it hears of first is chance.
  EXPECT_THAT(rank(1).receive(),
              AllOf(StartsWith("error UNAVAILABLE rank"), HasSubstr("has ended or left")));
  EXPECT_EQ(rank(1).finish(), 0);
}

TEST_F(GroupProcesses, AKilledMemberOfAWorkersJobIsKnownByTheLink) {
  start(3);
  all("worker", tcp(), "ok started");
  all("group", " over=1", StartsWith("ok rank "));
  all("all_reduce", "", "ok 3");
  rank(1).signal(SIGKILL);
  // No operation is under way: the link tells.
  for (const int other : {0, 2}) {
    rank(other).send("all_reduce");
    EXPECT_THAT(rank(other).receive(std::chrono::seconds(30)),
                AllOf(StartsWith("error"), HasSubstr("rank 1 (worker 'worker1')")));
  }
}

TEST_F(GroupProcesses, CallsThenGroupsThenCallsAtOnePort) {
  start(2);
  all("worker", tcp(), "ok started");
  // The same place: it is the worker's, over which the group meets.
  all("group", tcp(), StartsWith("ok rank "));
  all("all_reduce", "", "ok 2");
  EXPECT_EQ(rank(0).ask("call to=worker1"), "ok 42");
  all("destroy", "", "ok destroyed");
  EXPECT_EQ(rank(1).ask("call to=worker0"), "ok 42");
  all("group", " over=1 name=second", StartsWith("ok rank "));
  all("all_reduce", "", "ok 2");
  all("shutdown", "", "ok down");
  // A group outlives a graceful shutdown of its workers.
  all("all_reduce", "", "ok 2");
}

TEST_F(GroupProcesses, GroupsThenCallsAtOnePort) {
  start(3);
  all("group", tcp(), StartsWith("ok rank "));
  all("worker", tcp(), "ok started");
  all("all_reduce", "", "ok 3");
  EXPECT_EQ(rank(2).ask("call to=worker0"), "ok 42");
  all("shutdown", "", "ok down");
}

TEST_F(GroupProcesses, FilesAreSharedWithWorkersAndRemoved) {
  start(2);
  const std::string file = " init=file://" + folder_.file("meet");
  all("group", file, StartsWith("ok rank "));
  all("worker", file, "ok started");
  all("all_reduce", "", "ok 2");
  all("destroy", "", "ok destroyed");
  all("shutdown", "", "ok down");
  for (auto& process : ranks_) EXPECT_EQ(process->finish(), 0);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("meet.groups")));
}

TEST_F(GroupProcesses, TheStartNamesWhoIsMissing) {
  start(3);
  for (const int here : {0, 2}) {
    rank(here).send(absl::StrCat("group timeout_ms=4000", place(here), tcp()));
  }
  for (const int here : {0, 2}) {
    EXPECT_THAT(rank(here).receive(),
                AllOf(StartsWith("error DEADLINE_EXCEEDED"), HasSubstr("rank 1 of 3")));
  }
  all("group", tcp(), StartsWith("ok rank "));
}

// It serves the store, whose end the others must not hear of before they have heard why.
TEST_F(GroupProcesses, ARankZeroThatCannotStartTellsTheOthersBeforeItEnds) {
  start(3);
  rank(0).send(absl::StrCat("group dies=1 bind=192.0.2.1", place(0), tcp()));
  for (const int other : {1, 2}) {
    rank(other).send(absl::StrCat("group bind=127.0.0.1", place(other), tcp()));
  }
  for (const int other : {1, 2}) {
    EXPECT_THAT(rank(other).receive(),
                AllOf(StartsWith("error UNAVAILABLE"), HasSubstr("rank 0 has given up the start")));
  }
  EXPECT_EQ(rank(0).finish(), 1);
}

// Whatever is sent there.
TEST_F(GroupProcesses, StrangersAtThePortDoNoHarm) {
  start(2);
  rank(0).send(absl::StrCat("group", place(0), tcp()));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port_));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::vector<std::string> noises{"GET / HTTP/1.1\r\n\r\n",
                                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                        std::string(1000, '\xff'),
                                        std::string("\x04\x00\x00\x00"
                                                    "abcd",
                                                    8),
                                        std::string("\xff\xff\xff\x7f", 4),
                                        ""};
  for (const std::string& noise : noises) {
    int fd = -1;
    for (int tries = 0; tries < 2000 && fd < 0; ++tries) {
      fd = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) break;
      close(fd);
      fd = -1;
      usleep(5000);
    }
    ASSERT_GE(fd, 0);
    ASSERT_EQ(send(fd, noise.data(), noise.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(noise.size()));
    if (noise.empty()) shutdown(fd, SHUT_WR);
    // It greets, and hangs up.
    char buffer[256];
    while (recv(fd, buffer, sizeof buffer, 0) > 0) {
    }
    close(fd);
  }
  rank(1).send(absl::StrCat("group", place(1), tcp()));
  for (const int number : {0, 1}) EXPECT_THAT(rank(number).receive(), StartsWith("ok rank "));
  all("all_reduce", "", "ok 2");
}

TEST_F(GroupProcesses, AnotherServiceAtThePortIsNamed) {
  start(2);
  // A worker of another process: nobody's store.
  EXPECT_EQ(rank(0).ask(absl::StrCat("worker rank=0 size=1", tcp())), "ok started");
  EXPECT_THAT(
      rank(1).ask(absl::StrCat("group rank=1 size=2 timeout_ms=5000", tcp())),
      AnyOf(AllOf(StartsWith("error FAILED_PRECONDITION"), HasSubstr("serves no store")),
            AllOf(StartsWith("error DEADLINE_EXCEEDED"), HasSubstr("could not be reached"))));
  EXPECT_THAT(rank(1).ask(absl::StrCat("group rank=0 size=2 timeout_ms=5000", tcp())),
              StartsWith("error ALREADY_EXISTS"));
}

TEST_F(GroupProcesses, AStoreOverAWorkersLinks) {
  start(3);
  all("worker", tcp(), "ok started");
  all("store", "", "ok opened");
  rank(2).send("get key=greeting");
  EXPECT_EQ(rank(1).ask("set key=greeting value=hello"), "ok set");
  EXPECT_EQ(rank(2).receive(), "ok hello");
  EXPECT_EQ(rank(0).ask("get key=greeting"), "ok hello");
  EXPECT_THAT(rank(1).ask("get key=none timeout_ms=300"),
              AllOf(StartsWith("error DEADLINE_EXCEEDED"), HasSubstr("'none'")));
  rank(1).send("get key=never");
  rank(2).send("get key=never");
  rank(0).signal(SIGKILL);
  for (const int other : {1, 2}) {
    EXPECT_THAT(rank(other).receive(std::chrono::seconds(40)),
                AllOf(StartsWith("error UNAVAILABLE"), HasSubstr("worker0")));
  }
}

}  // namespace
