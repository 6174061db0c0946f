// Names of hosts that change while workers look for the job.

#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/network/network_fixture.h"

namespace {

using sinew::testing::NetworkTest;
using sinew::testing::NetworkWorld;
using ::testing::StartsWith;

class Names : public NetworkTest {
 protected:
  void SetUp() override {
    NetworkTest::SetUp();
    if (IsSkipped()) return;
    make(3);
    meet("learner.job:29500");
    learner_ = begin(1, "learner", "rank=0 bind=0.0.0.0:29500");
    world().set_hosts_file(1, line(1));
    ASSERT_THAT(learner_->receive(), StartsWith("ok "));
  }
  static std::string line(int host) {
    return absl::StrCat(NetworkWorld::address(host), " learner.job\n");
  }
  /// Time to fail in vain a few times; that it has done so nobody tells.
  static void wait_a_while() { std::this_thread::sleep_for(std::chrono::seconds(2)); }

  Child learner_;
};

TEST_F(Names, ANameIsLookedUpAgain) {
  world().set_hosts_file(2, line(3));
  const Child actor = begin(2, "actor");
  wait_a_while();
  world().set_hosts_file(2, line(1));
  EXPECT_THAT(actor->receive(), StartsWith("ok "));
  expect_members(*actor, "learner actor");
}

TEST_F(Names, ANameMayComeLater) {
  const Child actor = begin(2, "actor");
  wait_a_while();
  world().set_hosts_file(2, line(1));
  EXPECT_THAT(actor->receive(), StartsWith("ok "));
}

// As those of a headless service do, among which its own may be.
TEST_F(Names, AllAddressesOfANameAreAsked) {
  world().set_hosts_file(2, line(2) + line(3) + line(1));
  const Child actor = begin(2, "actor", "bind=0.0.0.0:29500");
  EXPECT_THAT(actor->receive(), StartsWith("ok "));
  expect_members(*actor, "learner actor");
}

// ADR 55: else it would hold a list of its own permanently.
TEST_F(Names, ARegistrarThatWasReplacedElsewhereWhileItWasStoppedGoes) {
  world().set_hosts_file(2, line(1));
  const Child actor = begin(2, "actor");
  EXPECT_THAT(actor->receive(), StartsWith("ok "));
  expect_members(*learner_, "learner actor");
  learner_->signal(SIGSTOP);
  EXPECT_EVENTUALLY(actor->ask("state"), "ok suspected, runs");
  for (int host : {1, 2, 3}) world().set_hosts_file(host, line(3));
  const Child next = begin(3, "learner", "rank=0 bind=0.0.0.0:29500");
  EXPECT_THAT(next->receive(), StartsWith("ok "));
  learner_->signal(SIGCONT);
  EXPECT_EVENTUALLY(learner_->ask("state"), "ok evicted, does not run");
  // On a slow host the actor may have come back too late for it to be of the same job.
  EXPECT_EQ(next->ask("state"), "ok member, runs");
}

}  // namespace
