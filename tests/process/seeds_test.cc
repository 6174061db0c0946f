// Processes that meet at several addresses, some of which lead nowhere.

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
using ::testing::SizeIs;
using ::testing::StartsWith;

namespace {

class Seeds : public ::testing::Test {
 protected:
  using Child = std::unique_ptr<ChildProcess>;

  Seeds() {
    for (std::string& each : seeds_) {
      each = absl::StrCat("127.0.0.1:", sinew::testing::free_port());
    }
  }
  /// Its answer to that is yet to be received.
  Child begin(const std::string& name, const std::string& more = "") const {
    auto child = std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
    child->send(
        absl::StrCat("start name=", name, " init=tcp://", seeds_[0], ",", seeds_[1], " ", more));
    return child;
  }
  static void expect_in_job(ChildProcess& child, const std::string& names) {
    EXPECT_EVENTUALLY(child.ask("members"), "ok " + names);
  }

  std::string seeds_[2];
};

TEST_F(Seeds, WorkersJoinThroughAMemberWhileTheFounderIsDead) {
  const Child actor = begin("actor", "bind=" + seeds_[1]);
  Child learner = begin("learner", "rank=0");
  ASSERT_THAT(learner->receive(), StartsWith("ok "));
  ASSERT_THAT(actor->receive(), StartsWith("ok "));
  learner->signal(SIGKILL);
  const Child late = begin("late");
  ASSERT_THAT(late->receive(), StartsWith("ok "));
  expect_in_job(*late, "actor late");
  learner = begin("learner", "rank=0");
  ASSERT_THAT(learner->receive(), StartsWith("ok "));
  const std::vector<ChildProcess*> all = {learner.get(), actor.get(), late.get()};
  for (ChildProcess* child : all) expect_in_job(*child, "learner actor late");
  for (ChildProcess* child : all) child->send("barrier 20000");
  for (ChildProcess* child : all) EXPECT_THAT(child->receive(), StartsWith("ok"));
}

// Of two founders the one at the first address founds, and so does either alone.
TEST_F(Seeds, SeveralFoundersFoundOneJob) {
  std::vector<Child> founders;
  for (const char* name : {"a", "b", "c"}) founders.push_back(begin(name, "found=always"));
  for (const Child& child : founders) ASSERT_THAT(child->receive(), StartsWith("ok "));
  for (const Child& child : founders) EXPECT_EVENTUALLY(child->ask("members"), SizeIs(8));
}

TEST_F(Seeds, AFixedWorldMeetsWhereItsRankZeroListens) {
  const Child b = begin("b", "rank=1 world=2");
  const Child a = begin("a", "rank=0 world=2 bind=" + seeds_[1]);
  ASSERT_THAT(a->receive(), StartsWith("ok "));
  ASSERT_THAT(b->receive(), StartsWith("ok "));
  expect_in_job(*a, "a b");
}

TEST_F(Seeds, NobodyThereIsAnErrorThatNamesAll) {
  const Child alone = begin("alone", "join_ms=1500");
  EXPECT_THAT(alone->receive(),
              AllOf(StartsWith("error DEADLINE_EXCEEDED"),
                    HasSubstr(absl::StrCat("'", seeds_[0], "' or '", seeds_[1], "'"))));
}

// In a cluster that starts names come with the machines that have them.
TEST_F(Seeds, ANameThatNobodyKnowsIsLookedUpUntilTheTimeIsOver) {
  seeds_[0] = "no-such-host.invalid:29500";
  const Child learner = begin("learner", "rank=0");
  ASSERT_THAT(learner->receive(), StartsWith("ok ")) << "the other seed is known";
  const Child actor = begin("actor");
  EXPECT_THAT(actor->receive(), StartsWith("ok "));
  seeds_[1] = "neither-this.invalid:29500";
  const Child alone = begin("alone", "join_ms=1500");
  EXPECT_THAT(alone->receive(), AllOf(StartsWith("error "), HasSubstr("is unknown")));
}

}  // namespace
