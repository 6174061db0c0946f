// The host of rank 0 knows itself by a name that leads to its own loopback, as Debian's installer
// sets it up; the other hosts know it by an address.

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/network/network_fixture.h"

namespace {

using sinew::testing::ChildProcess;
using sinew::testing::NetworkTest;
using sinew::testing::NetworkWorld;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kMeeting[] = "alpha:29500";

/// With what the host's own name leads to.
class OwnName : public NetworkTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    NetworkTest::SetUp();
    if (IsSkipped()) return;
    make(2);
    meet(kMeeting);
    world().set_hosts_file(1, absl::StrCat("127.0.0.1 localhost\n", GetParam(), " alpha\n"));
    world().set_hosts_file(2, absl::StrCat(NetworkWorld::address(1), " alpha\n"));
  }
};

TEST_P(OwnName, OfTheFounderIsNoObstacle) {
  const Child founder = begin(1, "founder", "rank=0");
  ASSERT_THAT(founder->receive(), StartsWith("ok 10.77.1.")) << "what it advertises";
  const Child beside = begin(1, "beside");
  ASSERT_THAT(beside->receive(), StartsWith("ok 10.77.1."));
  const Child other = begin(2, "other");
  ASSERT_THAT(other->receive(), StartsWith("ok 10.77.2."));
  for (ChildProcess* child : {founder.get(), beside.get(), other.get()}) {
    expect_members(*child, "founder beside other");
  }
  EXPECT_EQ(other->ask("add founder"), "ok 3");
  EXPECT_EQ(other->ask("add beside"), "ok 3");
  EXPECT_EQ(founder->ask("add other"), "ok 3");
  EXPECT_EQ(beside->ask("add founder"), "ok 3");
}

TEST_P(OwnName, OfRankZeroIsNoObstacleInAFixedWorld) {
  const Child zero = begin(1, "zero", "rank=0 world=2");
  const Child one = begin(2, "one", "rank=1 world=2");
  EXPECT_THAT(zero->receive(), StartsWith("ok 10.77.1."));
  EXPECT_THAT(one->receive(), StartsWith("ok 10.77.2."));
  EXPECT_EQ(one->ask("add zero"), "ok 3");
}

TEST_P(OwnName, IsAdvertisedByAnAddressThatOthersReach) {
  const Child founder = begin(1, "founder", "rank=0 bind=0.0.0.0:29500");
  EXPECT_EQ(founder->receive(), absl::StrCat("ok ", NetworkWorld::address(1), ":29500"));
}

#ifdef SINEW_GROUPS_WORKER
TEST_P(OwnName, OfTheStoreIsNoObstacleToAGroup) {
  std::vector<Child> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    // Two at the first host.
    ranks.push_back(
        std::make_unique<ChildProcess>(world().on(rank < 2 ? 1 : 2, {SINEW_GROUPS_WORKER})));
    ranks.back()->send(absl::StrCat("group clear=1 timeout_ms=20000 size=3 rank=", rank,
                                    " init=tcp://", kMeeting));
  }
  for (const Child& rank : ranks) EXPECT_THAT(rank->receive(), StartsWith("ok rank "));
  for (const Child& rank : ranks) rank->send("all_reduce");
  for (const Child& rank : ranks) EXPECT_EQ(rank->receive(), "ok 3");
}
#endif

#ifdef SINEW_RUN
TEST_P(OwnName, OfTheFirstNodeIsNoObstacleToSinewRun) {
  std::vector<Child> nodes;
  for (int node = 0; node < 2; ++node) {
    const std::vector<std::string> command = {
        SINEW_RUN, "--nnodes",      "2",     "--node-rank",    absl::StrCat(node), "--master-addr",
        "alpha",   "--master-port", "29500", SINEW_TEST_WORKER};
    nodes.push_back(std::make_unique<ChildProcess>(world().on(node + 1, command)));
    nodes.back()->send(absl::StrCat("start name=w", node, " network=trusted call_ms=20000"));
  }
  EXPECT_THAT(nodes[0]->receive(), StartsWith("ok 10.77.1."));
  EXPECT_THAT(nodes[1]->receive(), StartsWith("ok 10.77.2."));
  EXPECT_EQ(nodes[1]->ask("add w0"), "ok 3");
  EXPECT_EQ(nodes[0]->ask("add w1"), "ok 3");
}
#endif

INSTANTIATE_TEST_SUITE_P(LeadsTo, OwnName, ::testing::Values("127.0.1.1", "::1"),
                         [](const auto& test) { return test.param == "::1" ? "IPv6" : "IPv4"; });

class Localhost : public NetworkTest {};

TEST_F(Localhost, SaysThatItIsEachHostsOwn) {
  make(2);
  meet("localhost:29500");
  const Child zero = begin(1, "zero", "rank=0 world=2 join_ms=3000");
  const Child one = begin(2, "one", "rank=1 world=2 join_ms=3000");
  for (const Child* each : {&zero, &one}) {
    EXPECT_THAT((*each)->receive(),
                AllOf(StartsWith("error "), HasSubstr("localhost is each machine's own loopback"),
                      HasSubstr("MASTER_ADDR")));
  }
}

#ifdef SINEW_GROUPS_WORKER
TEST_F(Localhost, OfAGroupIsSaidToBeToo) {
  make(2);
  std::vector<Child> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<ChildProcess>(world().on(rank + 1, {SINEW_GROUPS_WORKER})));
    ranks.back()->send(absl::StrCat("group clear=1 timeout_ms=3000 size=2 rank=", rank,
                                    " init=tcp://localhost:29500"));
  }
  for (const Child& rank : ranks) {
    EXPECT_THAT(rank->receive(),
                AllOf(StartsWith("error "), HasSubstr("localhost is each machine's own loopback")));
  }
}
#endif

}  // namespace
