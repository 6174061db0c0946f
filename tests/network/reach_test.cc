// Workers of which some cannot open connections to others.

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/network/network_fixture.h"

namespace {

using sinew::testing::ChildProcess;
using sinew::testing::NetworkTest;
using sinew::testing::NetworkWorld;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Reach : public NetworkTest {};

TEST_F(Reach, AWorkerBehindNatCallsAndIsCalled) {
  make(3);
  world().put_behind_nat(3);
  const Child learner = begin(1, "learner", "rank=0");
  ASSERT_THAT(learner->receive(), StartsWith("ok "));
  const Child actor = begin(2, "actor");
  ASSERT_THAT(actor->receive(), StartsWith("ok "));
  Child hidden = begin(3, "hidden");
  ASSERT_THAT(hidden->receive(), StartsWith("ok "));
  const std::string all = "learner actor hidden";
  for (ChildProcess* child : {learner.get(), actor.get(), hidden.get()})
    expect_members(*child, all);
  EXPECT_EQ(hidden->ask("add learner"), "ok 3");
  EXPECT_EQ(hidden->ask("add actor"), "ok 3");
  // Nobody can open a connection to it: those who want one ask it for that.
  EXPECT_EQ(learner->ask("add hidden"), "ok 3");
  EXPECT_EQ(actor->ask("add hidden"), "ok 3");
  expect_barrier({learner.get(), actor.get(), hidden.get()});
  hidden->signal(SIGKILL);
  for (ChildProcess* child : {learner.get(), actor.get()}) expect_members(*child, "learner actor");
  // Under its name, and from the same place.
  hidden = begin(3, "hidden");
  ASSERT_THAT(hidden->receive(), StartsWith("ok "));
  for (ChildProcess* child : {learner.get(), actor.get(), hidden.get()})
    expect_members(*child, all);
  EXPECT_EQ(actor->ask("add hidden"), "ok 3");
}

class OneWay : public NetworkTest, public ::testing::WithParamInterface<NetworkWorld::Firewall> {};

TEST_P(OneWay, WhoCannotOpenAConnectionAsksTheOtherOneTo) {
  make(3);
  world().forbid(2, 3, GetParam());
  const Child learner = begin(1, "learner", "rank=0");
  ASSERT_THAT(learner->receive(), StartsWith("ok "));
  const Child actor = begin(2, "actor");
  ASSERT_THAT(actor->receive(), StartsWith("ok "));
  const Child closed = begin(3, "closed");
  ASSERT_THAT(closed->receive(), StartsWith("ok "));
  for (ChildProcess* child : {learner.get(), actor.get(), closed.get()}) {
    expect_members(*child, "learner actor closed");
  }
  EXPECT_EQ(actor->ask("add closed"), "ok 3");
  EXPECT_EQ(closed->ask("add actor"), "ok 3");
  expect_barrier({learner.get(), actor.get(), closed.get()});
}
INSTANTIATE_TEST_SUITE_P(That, OneWay,
                         ::testing::Values(NetworkWorld::Firewall::kDrop,
                                           NetworkWorld::Firewall::kReject),
                         [](const auto& test) {
                           return test.param == NetworkWorld::Firewall::kDrop ? "Drops" : "Rejects";
                         });

// There is no way, and Sinew carries nothing for others.
TEST_F(Reach, TwoBehindDifferentRoutersCannotCallEachOther) {
  make(3);
  world().put_behind_nat(2);
  world().put_behind_nat(3);
  const Child learner = begin(1, "learner", "rank=0");
  ASSERT_THAT(learner->receive(), StartsWith("ok "));
  const Child one = begin(2, "one");
  ASSERT_THAT(one->receive(), StartsWith("ok "));
  const Child other = begin(3, "other");
  ASSERT_THAT(other->receive(), StartsWith("ok "));
  EXPECT_EQ(learner->ask("add one"), "ok 3");
  EXPECT_EQ(learner->ask("add other"), "ok 3");
  EXPECT_THAT(
      one->ask("add other"),
      ::testing::AllOf(
          StartsWith("error "),
          HasSubstr("worker 'other' cannot be reached: nothing comes back from 10.77.3.2:")));
  EXPECT_EQ(learner->ask("add one"), "ok 3") << "who cannot reach one may go on with another";
}

}  // namespace
