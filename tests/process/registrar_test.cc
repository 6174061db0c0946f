// What becomes of a job while the worker that holds its list is away. The test only looks on.

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/support/eventual_value.h"
#include "sinew/tests/support/processes.h"

using sinew::testing::ChildProcess;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

namespace {

class RegistrarAway : public ::testing::Test {
 protected:
  using Child = std::unique_ptr<ChildProcess>;

  Child begin(const std::string& name, const std::string& more = "") const {
    auto child =
        std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER}, environment_);
    child->send(absl::StrCat("start name=", name, " init=tcp://127.0.0.1:", port_,
                             " beat_ms=200 lease_ms=20000 ", more));
    return child;
  }
  Child start(const std::string& name, const std::string& more = "") const {
    Child child = begin(name, more);
    EXPECT_THAT(child->receive(), StartsWith("ok ")) << name;
    return child;
  }

  static void expect_away(const std::vector<const Child*>& all) {
    for (const Child* each : all) EXPECT_EVENTUALLY((*each)->ask("state"), "ok suspected, runs");
  }
  /// In order, long before that might take so long.
  static void expect_end(const std::vector<const Child*>& all) {
    for (const Child* each : all) (*each)->send("shutdown graceful 3600000");
    for (const Child* each : all) EXPECT_EQ((*each)->receive(), "ok ");
    for (const Child* each : all) EXPECT_EQ((*each)->ask("state"), "ok left, does not run");
  }

  const int port_ = sinew::testing::free_port();
  std::vector<std::string> environment_;
};

TEST_F(RegistrarAway, TheListStandsStillUntilItIsStartedAgain) {
  Child a = start("a", "rank=0");
  const Child b = start("b");
  const Child c = start("c");
  EXPECT_EVENTUALLY(b->ask("members"), "ok a b c");
  a->signal(SIGKILL);
  for (const Child* each : std::vector<const Child*>{&b, &c}) {
    EXPECT_EVENTUALLY((*each)->ask("state"), "ok suspected, runs");
    EXPECT_THAT((*each)->ask("barrier 30000 b c"),
                AllOf(StartsWith("error UNAVAILABLE"), HasSubstr("the registrar at 127.0.0.1:")));
  }
  // Those who see each other go on.
  EXPECT_EQ(b->ask("add c"), "ok 3");
  EXPECT_EVENTUALLY(b->ask("members"), "ok b c");
  const Child d = begin("d");
  EXPECT_THROW(ADD_FAILURE() << d->receive(500ms), std::runtime_error);
  a = start("a", "rank=0");
  EXPECT_THAT(d->receive(), StartsWith("ok "));
  for (const Child* each : std::vector<const Child*>{&a, &b, &c, &d}) {
    EXPECT_EVENTUALLY((*each)->ask("members"), "ok a b c d");
    EXPECT_EVENTUALLY((*each)->ask("state"), "ok member, runs");
  }
  // Which is the same one for both that had failed.
  b->send("barrier 30000 b c");
  EXPECT_EQ(c->ask("barrier 30000 b c"), "ok ");
  EXPECT_EQ(b->receive(), "ok ");
}

// ADR 55: all its links have ended meanwhile, and no link comes up again.
TEST_F(RegistrarAway, OneThatWasStoppedForLongerThanALeasePutsNobodyOff) {
  const std::string short_lease = "lease_ms=2000";
  const Child a = start("a", absl::StrCat("rank=0 ", short_lease));
  const Child b = start("b", short_lease);
  const Child c = start("c", short_lease);
  EXPECT_EVENTUALLY(b->ask("members"), "ok a b c");
  // It goes which has lost more members, and only who has been linked with another one loses it.
  for (const Child* each : {&b, &c}) EXPECT_EQ((*each)->ask("add a"), "ok 3");
  a->signal(SIGSTOP);
  for (const Child* each : std::vector<const Child*>{&b, &c}) {
    EXPECT_EVENTUALLY((*each)->ask("state"), "ok suspected, runs");
    EXPECT_THAT((*each)->ask("add a"), StartsWith("error UNAVAILABLE"));
  }
  a->signal(SIGCONT);
  // It has lost both, and each of them only one.
  EXPECT_EVENTUALLY(a->ask("state"), "ok evicted, does not run");
  EXPECT_EQ(b->ask("add c"), "ok 3");
  EXPECT_THAT(a->ask("rejoin"), StartsWith("ok "));
  for (const Child* each : std::vector<const Child*>{&a, &b, &c}) {
    EXPECT_EVENTUALLY((*each)->ask("members"), "ok a b c");
    EXPECT_EVENTUALLY((*each)->ask("state"), "ok member, runs");
  }
  EXPECT_EQ(b->ask("add a"), "ok 3");
}

/// A registrar that is no worker.
class OwnRegistrar : public RegistrarAway {
 protected:
  void start_registrar(const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {SINEW_REGISTRAR, "--bind",
                                        absl::StrCat("127.0.0.1:", port_), "--lease", "20"};
    command.insert(command.end(), more.begin(), more.end());
    registrar_ = std::make_unique<ChildProcess>(command, environment_);
    EXPECT_THAT(registrar_->receive(), HasSubstr(absl::StrCat("at tcp://127.0.0.1:", port_)));
  }
  Child begin_in(const std::string& name, const std::string& more = "") const {
    return begin(name, absl::StrCat("founds=never ", more));
  }
  Child start_in(const std::string& name, const std::string& more = "") const {
    Child child = begin_in(name, more);
    EXPECT_THAT(child->receive(), StartsWith("ok ")) << name;
    return child;
  }

  Child registrar_;
};

TEST_F(OwnRegistrar, AnyWorkerMayDie) {
  start_registrar();
  Child a = start_in("a", "rank=0");
  Child b = start_in("b", "rank=1");
  for (int round = 0; round < 2; ++round) {
    const Child c = start_in("c", "rank=2");
    EXPECT_EVENTUALLY(c->ask("members"), "ok a b c");
    // All that were there, one after the other.
    a->signal(SIGKILL);
    EXPECT_EVENTUALLY(c->ask("members"), "ok b c");
    EXPECT_EQ(c->ask("state"), "ok member, runs");
    a = start_in("a", "rank=0");
    b->signal(SIGKILL);
    EXPECT_EVENTUALLY(a->ask("members"), "ok a c");
    b = start_in("b", "rank=1");
    EXPECT_EQ(c->ask("shutdown graceful"), "ok ");
    EXPECT_EVENTUALLY(a->ask("members"), "ok a b");
  }
  EXPECT_EQ(a->ask("add b"), "ok 3");
}

TEST_F(OwnRegistrar, KnowsTheTokenOfItsJob) {
  for (const char* tls : {"0", "1"}) {
    const std::string switched = absl::StrCat("SINEW_JOB_TLS=", tls);
    environment_ = {"SINEW_JOB_TOKEN=0123456789abcdef", switched};
    start_registrar();
    const Child a = start_in("a");
    const Child b = start_in("b");
    EXPECT_EQ(a->ask("add b"), "ok 3");
    environment_ = {"SINEW_JOB_TOKEN=0123456789abcdeg", switched};
    EXPECT_THAT(begin_in("c", "join_ms=5000")->receive(),
                HasSubstr(tls[0] == '1' ? "is not signed by our authority"
                                        : "does not know the token of this job"));
    EXPECT_EVENTUALLY(a->ask("members"), "ok a b");
    registrar_.reset();
  }
}

TEST_F(OwnRegistrar, MembersComeBackToOneThatIsStartedAgain) {
  start_registrar();
  const Child a = start_in("a");
  const Child b = start_in("b");
  Child c = start_in("c");
  EXPECT_EVENTUALLY(a->ask("members"), "ok a b c");
  registrar_->signal(SIGKILL);
  for (const Child* each : std::vector<const Child*>{&a, &b, &c}) {
    EXPECT_EVENTUALLY((*each)->ask("state"), "ok suspected, runs");
  }
  EXPECT_EQ(a->ask("add b"), "ok 3");
  c->signal(SIGKILL);
  const Child d = begin_in("d");
  EXPECT_THROW(ADD_FAILURE() << d->receive(500ms), std::runtime_error);
  start_registrar();
  EXPECT_THAT(d->receive(), StartsWith("ok "));
  for (const Child* each : std::vector<const Child*>{&a, &b, &d}) {
    EXPECT_EVENTUALLY((*each)->ask("state"), "ok member, runs");
    EXPECT_EVENTUALLY((*each)->ask("members"), "ok a b d");
  }
  for (const Child* each : std::vector<const Child*>{&a, &b, &d})
    (*each)->send("barrier 30000 a b d");
  for (const Child* each : std::vector<const Child*>{&a, &b, &d})
    EXPECT_EQ((*each)->receive(), "ok ");
}

TEST_F(OwnRegistrar, AFixedWorldIsWaitedForAndEndsTogether) {
  start_registrar({"--world-size", "2"});
  const Child b = begin_in("b", "rank=1 world=2");
  EXPECT_THROW(ADD_FAILURE() << b->receive(500ms), std::runtime_error);
  const Child third = begin_in("c", "rank=2 world=3");
  EXPECT_THAT(third->receive(), AllOf(StartsWith("error FAILED_PRECONDITION"),
                                      HasSubstr("expects 3 workers, and the job has 2")));
  const Child a = begin_in("a", "rank=0 world=2");
  for (const Child* each : std::vector<const Child*>{&a, &b})
    EXPECT_THAT((*each)->receive(), StartsWith("ok "));
  for (const Child* each : std::vector<const Child*>{&a, &b}) (*each)->send("shutdown graceful");
  for (const Child* each : std::vector<const Child*>{&a, &b}) EXPECT_EQ((*each)->receive(), "ok ");
}

TEST_F(OwnRegistrar, IsEndedByASignal) {
  start_registrar();
  registrar_->signal(SIGTERM);
  EXPECT_EQ(registrar_->finish(), 0);
}

// In a fixed world they would leave together; each says in its log that it did not.
TEST_F(RegistrarAway, LeavingDoesNotHangOnIt) {
  for (const std::string world : {"", "world=3"}) {
    SCOPED_TRACE(world);
    Child a = begin("a", absl::StrCat("rank=0 ", world));
    const Child b = begin("b", absl::StrCat("rank=1 ", world));
    const Child c = begin("c", absl::StrCat("rank=2 ", world));
    for (const Child* each : std::vector<const Child*>{&a, &b, &c})
      EXPECT_THAT((*each)->receive(), StartsWith("ok "));
    a->signal(SIGKILL);
    expect_away({&b, &c});
    expect_end({&b, &c});
  }
}

TEST_F(OwnRegistrar, LeavingDoesNotHangOnIt) {
  for (const std::string world : {"", "world=2"}) {
    SCOPED_TRACE(world);
    start_registrar({"--world-size", world.empty() ? "0" : "2"});
    const Child b = begin_in("b", absl::StrCat("rank=0 ", world));
    const Child c = begin_in("c", absl::StrCat("rank=1 ", world));
    for (const Child* each : std::vector<const Child*>{&b, &c})
      EXPECT_THAT((*each)->receive(), StartsWith("ok "));
    registrar_->signal(SIGKILL);
    expect_away({&b, &c});
    expect_end({&b, &c});
  }
}

}  // namespace
