// A process that is stopped for longer than its lease is out of the job, and knows it when it goes
// on. The test only looks on.

#include <csignal>
#include <memory>
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
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

namespace {

enum class Meet { kFile, kTcpOpen, kTcpFixed };

class Stopped : public ::testing::TestWithParam<Meet> {
 protected:
  using Child = std::unique_ptr<ChildProcess>;

  void SetUp() override {
    port_ = sinew::testing::free_port();
    a_ = begin("a", 0);
    b_ = begin("b", 1);
    c_ = begin("c", 2);
    for (const auto* child : {&a_, &b_, &c_}) ASSERT_THAT((*child)->receive(), StartsWith("ok "));
    for (const auto* child : {&a_, &b_}) EXPECT_EVENTUALLY((*child)->ask("members"), "ok a b c");
    // Only who has been linked with another one misses it.
    for (const auto* child : {&b_, &c_}) EXPECT_EQ((*child)->ask("add a"), "ok 3");
  }
  /// Its answer to that is yet to be received.
  Child begin(const std::string& name, int rank, const std::string& more = "") const {
    auto child = std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
    std::string where = absl::StrCat("file://", folder_.file("meet"));
    if (GetParam() != Meet::kFile) {
      where = absl::StrCat("tcp://127.0.0.1:", port_, " rank=", rank);
      if (GetParam() == Meet::kTcpFixed) absl::StrAppend(&where, " world=3");
    } else {
      absl::StrAppend(&where, " founds=zero rank=", rank);
    }
    child->send(
        absl::StrCat("start name=", name, " init=", where, " lease_ms=4000 beat_ms=200", more));
    return child;
  }
  static void expect_evicted(ChildProcess& child, const std::string& name) {
    EXPECT_EVENTUALLY(child.ask("state"), "ok evicted, does not run");
    for (const char* what : {"add a", "add b", "add c", "barrier 1000"}) {
      EXPECT_THAT(child.ask(what), AllOf(StartsWith("error ABORTED"),
                                         HasSubstr("'" + name + "' was evicted from the job")))
          << what;
    }
  }
  static void expect_in_job(ChildProcess& child, const std::string& names) {
    EXPECT_EVENTUALLY(child.ask("members"), "ok " + names);
    // It may just have been asked by one that was stopped.
    EXPECT_EVENTUALLY(child.ask("state"), "ok member, runs");
  }

  /// Of all but rank 0, which holds the list and is stopped.
  static void expect_list_stands_still(ChildProcess& child) {
    EXPECT_EVENTUALLY(child.ask("state"), "ok suspected, runs");
    EXPECT_EVENTUALLY(child.ask("members"), "ok b c");
  }
  /// Over a file another one takes the list then.
  void expect_in_job_without_rank_zero(ChildProcess& child) const {
    GetParam() == Meet::kFile ? expect_in_job(child, "b c") : expect_list_stands_still(child);
  }

  const sinew::testing::TemporaryFolder folder_;
  int port_ = 0;
  Child a_, b_, c_;
};

TEST_P(Stopped, AMemberLearnsThatItIsOut) {
  // It waits for a result all the time.
  EXPECT_EQ(c_->ask("prefetch a 1 8"), "ok ");
  c_->signal(SIGSTOP);
  expect_in_job(*a_, "a b");
  expect_in_job(*b_, "a b");
  c_->signal(SIGCONT);
  EXPECT_THAT(c_->ask("collect"),
              AllOf(StartsWith("error ABORTED"), HasSubstr("'c' was evicted from the job")));
  expect_evicted(*c_, "c");
  expect_in_job(*a_, "a b");
  expect_in_job(*b_, "a b");
  // In its place.
  // With nobody to take leave of.
  EXPECT_EQ(c_->ask("shutdown graceful 20000"), "ok ");
  EXPECT_EQ(c_->ask("state"), "ok left, does not run");
  c_ = begin("c", 2);
  EXPECT_THAT(c_->receive(), StartsWith("ok "));
  expect_in_job(*b_, "a b c");
  EXPECT_EQ(b_->ask("add c"), "ok 3");
}

TEST_P(Stopped, TheRegistrarLearnsThatItIsOut) {
  a_->signal(SIGSTOP);
  expect_list_stands_still(*b_);
  expect_list_stands_still(*c_);
  a_->signal(SIGCONT);
  expect_evicted(*a_, "a");
  expect_in_job_without_rank_zero(*b_);
  expect_in_job_without_rank_zero(*c_);
  EXPECT_EQ(a_->ask("shutdown hard 1000"), "ok ");
  a_ = begin("a", 0);
  EXPECT_THAT(a_->receive(), StartsWith("ok "));
  expect_in_job(*a_, "a b c");
  expect_in_job(*c_, "a b c");
  for (const auto* child : {&a_, &b_, &c_}) (*child)->send("barrier 20000");
  for (const auto* child : {&a_, &b_, &c_}) EXPECT_EQ((*child)->receive(), "ok ");
}

// The addresses where they listen are the old ones'.
class Rejoins : public Stopped {
 protected:
  /// `names` is what is left without it; the `others` say so.
  static void stop_until_out(ChildProcess& child, const std::vector<ChildProcess*>& others,
                             const std::string& names) {
    child.signal(SIGSTOP);
    for (ChildProcess* other : others) expect_in_job(*other, names);
    child.signal(SIGCONT);
  }
  void expect_all() const {
    for (const auto* child : {&a_, &b_, &c_}) expect_in_job(**child, "a b c");
    for (const char* what : {"add a", "add b", "add c"}) {
      for (const auto* child : {&a_, &b_, &c_}) EXPECT_EQ((*child)->ask(what), "ok 3") << what;
    }
    for (const auto* child : {&a_, &b_, &c_}) (*child)->send("barrier 20000");
    for (const auto* child : {&a_, &b_, &c_}) EXPECT_EQ((*child)->receive(), "ok ");
  }
  /// In the place of `child`, which has not been stopped.
  void begin_again(Child& child, const std::string& name, int rank, const std::string& more) {
    EXPECT_EQ(child->ask("shutdown hard 1000"), "ok ");
    child = begin(name, rank, more);
    ASSERT_THAT(child->receive(), StartsWith("ok "));
    expect_all();
  }
};

TEST_P(Rejoins, AMember) {
  const std::string address = absl::StrCat("127.0.0.1:", sinew::testing::free_port());
  begin_again(c_, "c", 2, " bind=" + address);
  for (int times = 0; times < 2; ++times) {
    EXPECT_THAT(c_->ask("rejoin"),
                AllOf(StartsWith("error FAILED_PRECONDITION"), HasSubstr("'c' is not evicted")));
    stop_until_out(*c_, {a_.get(), b_.get()}, "a b");
    expect_evicted(*c_, "c");
    EXPECT_EQ(c_->ask("rejoin"), "ok " + address);
    expect_all();
  }
}

TEST_P(Rejoins, TheRegistrar) {
  a_->signal(SIGSTOP);
  expect_list_stands_still(*b_);
  expect_list_stands_still(*c_);
  a_->signal(SIGCONT);
  expect_evicted(*a_, "a");
  EXPECT_THAT(a_->ask("rejoin"), StartsWith("ok "));
  expect_all();
}

TEST_P(Rejoins, AndEachIsToldOfIt) {
  for (const auto* child : {&a_, &b_, &c_}) EXPECT_EQ((*child)->ask("watch"), "ok ");
  stop_until_out(*c_, {a_.get(), b_.get()}, "a b");
  // Others it may take for lost before it knows.
  EXPECT_EVENTUALLY(c_->ask("events"), EndsWith("evicted:c"));
  EXPECT_THAT(c_->ask("watch"), StartsWith("error ABORTED"));
  EXPECT_THAT(c_->ask("rejoin"), StartsWith("ok "));
  expect_all();
  // It was silent for some time before; who has no lease with it need not have noticed.
  for (const auto* child : {&a_, &b_}) {
    EXPECT_EVENTUALLY((*child)->ask("events"), EndsWith("lost:c joined:c"));
  }
  EXPECT_EQ(c_->ask("watch"), "ok ");
  EXPECT_EQ(b_->ask("shutdown hard 1000"), "ok ");
  EXPECT_EVENTUALLY(c_->ask("events"), EndsWith("lost:b"));
}

TEST_P(Rejoins, ByItself) {
  begin_again(c_, "c", 2, " rejoins=1");
  stop_until_out(*c_, {a_.get(), b_.get()}, "a b");
  EXPECT_EVENTUALLY(c_->ask("rejoined"), "ok yes");
  expect_all();
  // Over a file another one would take the list.
  if (GetParam() == Meet::kFile) return;
  begin_again(a_, "a", 0, " rejoins=1");
  a_->signal(SIGSTOP);
  expect_list_stands_still(*b_);
  expect_list_stands_still(*c_);
  a_->signal(SIGCONT);
  EXPECT_EVENTUALLY(a_->ask("rejoined"), "ok yes");
  expect_all();
}

// exit() meanwhile.
TEST_P(Rejoins, NotAgainstTheEndOfTheProcess) {
  begin_again(c_, "c", 2, " rejoins=1");
  stop_until_out(*c_, {a_.get(), b_.get()}, "a b");
  c_->send("exit 7");
  EXPECT_EQ(c_->finish(), 7);
  expect_in_job(*a_, "a b");
}

std::string name_of(const ::testing::TestParamInfo<Meet>& each) {
  if (each.param == Meet::kFile) return "File";
  return each.param == Meet::kTcpOpen ? "TcpOpen" : "TcpFixed";
}
const auto kAll = ::testing::Values(Meet::kFile, Meet::kTcpOpen, Meet::kTcpFixed);
INSTANTIATE_TEST_SUITE_P(Over, Stopped, kAll, name_of);
INSTANTIATE_TEST_SUITE_P(Over, Rejoins, kAll, name_of);

}  // namespace
