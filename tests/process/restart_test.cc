// A worker is started again under its name, sooner than the others know that the one before it is
// dead, or while another one is down. The test only looks on.

#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/support/eventual_value.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::testing::ChildProcess;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

namespace {

enum class Meet { kFile, kTcp };

class Restart : public ::testing::TestWithParam<Meet> {
 protected:
  using Child = std::unique_ptr<ChildProcess>;

  /// Its answer to that is yet to be received.
  Child begin(const std::string& name, int rank, const std::string& more) const {
    auto child = std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
    const std::string where = GetParam() == Meet::kFile
                                  ? absl::StrCat("file://", folder_.file("meet"), " founds=zero")
                                  : absl::StrCat("tcp://127.0.0.1:", port_);
    child->send(absl::StrCat("start name=", name, " init=", where, " rank=", rank, " ", more));
    return child;
  }
  /// `a`, `b` and so on, by rank.
  std::vector<Child> start_world(int size, const std::string& more) const {
    std::vector<Child> children;
    for (int rank = 0; rank < size; ++rank) children.push_back(begin(name_of(rank), rank, more));
    for (const Child& child : children) EXPECT_THAT(child->receive(), StartsWith("ok "));
    return children;
  }
  static std::string name_of(int rank) { return {static_cast<char>('a' + rank)}; }
  /// Nothing is said for a while.
  static void expect_waits(ChildProcess& child) {
    EXPECT_THROW(ADD_FAILURE() << child.receive(500ms), std::runtime_error);
  }
  static void expect_members(ChildProcess& child, const std::string& names) {
    EXPECT_EVENTUALLY(child.ask("members"), "ok " + names);
  }

  const sinew::testing::TemporaryFolder folder_;
  const int port_ = sinew::testing::free_port();
};
INSTANTIATE_TEST_SUITE_P(All, Restart, ::testing::Values(Meet::kFile, Meet::kTcp),
                         [](const auto& param) {
                           return param.param == Meet::kFile ? "File" : "Tcp";
                         });

// ---- Under the name of one that may be dead.

// The lease is longer than any machine is busy.
constexpr const char* kLongLease = "lease_ms=120000";

TEST_P(Restart, WhoComesBeforeTheDeathOfItsPredecessorIsKnownWaits) {
  const std::vector<Child> children = start_world(2, kLongLease);
  // As one that is dead to those who have not heard of it.
  children[1]->signal(SIGSTOP);
  const Child next = begin("b", 1, kLongLease);
  expect_waits(*next);
  children[1]->signal(SIGKILL);
  EXPECT_THAT(next->receive(), StartsWith("ok "));
  expect_members(*children[0], "a b");
  EXPECT_EQ(children[0]->ask("add b"), "ok 3");
}

TEST_P(Restart, AtOnceAgainAndAgain) {
  const std::vector<Child> children = start_world(2, kLongLease);
  Child current;
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    // Nobody waits for its end.
    ASSERT_EQ(::kill((round == 0 ? children[1] : current)->pid(), SIGKILL), 0);
    Child next = begin("b", 1, kLongLease);
    ASSERT_THAT(next->receive(), StartsWith("ok "));
    current = std::move(next);
  }
  EXPECT_EQ(children[0]->ask("add b"), "ok 3");
}

TEST_P(Restart, WhoComesWhileItsPredecessorIsStoppedTakesItsPlaceAfterTheLease) {
  const std::string lease = "lease_ms=4000 beat_ms=200";
  const std::vector<Child> children = start_world(2, lease);
  children[1]->signal(SIGSTOP);
  const Child next = begin("b", 1, lease);
  EXPECT_THAT(next->receive(), StartsWith("ok "));
  expect_members(*children[0], "a b");
  children[1]->signal(SIGCONT);
  EXPECT_EVENTUALLY(children[1]->ask("state"), "ok evicted, does not run");
  EXPECT_EQ(children[0]->ask("add b"), "ok 3");
}

TEST_P(Restart, WhoComesWhileItsPredecessorGoesOnIsRefused) {
  const std::vector<Child> children = start_world(2, kLongLease);
  const Child next = begin("b", 1, kLongLease);
  EXPECT_THAT(next->receive(), AllOf(StartsWith("error ALREADY_EXISTS"),
                                     HasSubstr("name 'b' is already used by rank 1")));
  // It has been stopped for a while, and answers in the end.
  children[1]->signal(SIGSTOP);
  const Child later = begin("b", 1, kLongLease);
  expect_waits(*later);
  children[1]->signal(SIGCONT);
  EXPECT_THAT(later->receive(), StartsWith("error ALREADY_EXISTS"));
  EXPECT_EQ(children[0]->ask("add b"), "ok 3");
}

TEST_P(Restart, BeforeAFixedWorldIsComplete) {
  const Child a = begin("a", 0, "world=3");
  const Child b = begin("b", 1, "world=3");
  // It has mostly come by then, and waits for the others.
  expect_waits(*b);
  b->signal(SIGKILL);
  const Child again = begin("b", 1, "world=3");
  const Child c = begin("c", 2, "world=3");
  for (const Child* child : {&a, &again, &c}) EXPECT_THAT((*child)->receive(), StartsWith("ok "));
  expect_members(*a, "a b c");
}

// ---- While others of a fixed world are down.

constexpr const char* kGracefully = "shutdown graceful 60000";

class FixedRestart : public Restart {
 protected:
  void SetUp() override {
    children_ = start_world(3, "world=3");
    ASSERT_FALSE(HasFailure());
  }
  void kill(int rank) { at(rank).signal(SIGKILL); }
  void start(int rank, const std::string& name) {
    Child& child = children_[static_cast<std::size_t>(rank)];
    child = begin(name, rank, "world=3");
    EXPECT_THAT(child->receive(), StartsWith("ok "));
  }
  ChildProcess& at(int rank) { return *children_[static_cast<std::size_t>(rank)]; }
  void shut_down(const std::vector<int>& ranks) {
    for (const int rank : ranks) at(rank).send(kGracefully);
    for (const int rank : ranks) EXPECT_EQ(at(rank).receive(), "ok ") << rank;
  }

  std::vector<Child> children_;
};
INSTANTIATE_TEST_SUITE_P(All, FixedRestart, ::testing::Values(Meet::kFile, Meet::kTcp),
                         [](const auto& param) {
                           return param.param == Meet::kFile ? "File" : "Tcp";
                         });

TEST_P(FixedRestart, AllShutDownTogether) {
  kill(1);
  start(1, "b");
  shut_down({0, 1, 2});
}

TEST_P(FixedRestart, WhoNeverKnewOneThatWasLostShutsDownWithTheOthers) {
  kill(2);
  expect_members(at(0), "a b");
  kill(1);
  start(1, "b");
  shut_down({0, 1});
}

TEST_P(FixedRestart, WhoHaveNotMetThoseOfBeforeShutDownTogether) {
  kill(2);
  kill(1);
  start(1, "b");
  start(2, "c");
  kill(0);
  start(0, "a");
  kill(2);
  expect_members(at(0), "a b");
  shut_down({1, 0});
}

TEST_P(FixedRestart, UnderAnotherNameToo) {
  kill(2);
  kill(1);
  start(1, "d");
  shut_down({0, 1});
}

}  // namespace
