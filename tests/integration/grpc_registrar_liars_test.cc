// Liars who ask the registrar, over real bytes, with and without TLS: nobody is put off by what
// they say, nobody comes in, and nothing is held up.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/registry.pb.h"
#include "sinew/tests/integration/secured_test.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/raw_asker.h"

using sinew::Worker;
using sinew::WorkerInfo;
using sinew::testing::eventually;
using sinew::testing::RawAsker;
using ::testing::HasSubstr;
using namespace sinew::internal::registry;
using namespace std::chrono_literals;

namespace {

/// Three workers of an open job; worker0 is registrar.
class Liars : public sinew::testing::SecuredTest {
 protected:
  void SetUp() override {
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(3);
    options.transport = sinew::testing::ClusterTransport::kGrpc;
    options.methods = testapp::methods();
    options.world = sinew::testing::ClusterWorld::kOpen;
    options.tweak = [this](int rank, sinew::WorkerOptions& worker) {
      worker.credentials = credentials(worker.name);
      if (rank == 0) late_ = worker;
    };
    cluster_ = std::make_unique<sinew::testing::Cluster>(std::move(options));
    expect_all_well(3);
  }
  /// Nobody is gone, and nobody has come. One that comes now gets in.
  void TearDown() override {
    expect_all_well(members_);
    late_.name = "late";
    late_.rank.reset();
    late_.credentials = credentials("late");
    const Worker late = sinew::init_rpc(late_);
    EXPECT_EQ(late.workers().size(), members_ + 1);
    late.shutdown();
    cluster_->shutdown();
  }
  void expect_all_well(std::size_t members) {
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EVENTUALLY(worker(rank).workers().size(), members);
      EXPECT_EQ(worker(rank).membership_state(), sinew::MembershipState::kMember);
      for (int other = 0; other < 3; ++other) {
        EXPECT_EQ(worker(rank).peer(worker(other).name()).call<&testapp::add>(1, 2), 3);
      }
    }
  }
  const Worker& worker(int rank) const { return cluster_->worker(rank); }
  std::string registrar() const { return worker(0).address(); }
  /// A member of the job that is none of ours.
  std::unique_ptr<RawAsker> member() {
    auto asker = std::make_unique<RawAsker>(WorkerInfo{"liar", -1, {}}, credentials("liar"));
    EXPECT_TRUE(asker->open(registrar()).ok());
    asker->say(asker->join_as(-1, 0));
    EXPECT_NE(asker->wait<List>(), nullptr);
    members_ = 4;
    return asker;
  }
  /// All who are no liars.
  std::vector<WorkerInfo> honest() const {
    return {worker(0).info(), worker(1).info(), worker(2).info()};
  }

  std::unique_ptr<sinew::testing::Cluster> cluster_;
  sinew::WorkerOptions late_;
  std::size_t members_ = 3;
};
SINEW_INSTANTIATE_SECURED_TEST(Liars);

// Lists come from whoever a worker has asked itself, over the connection that it has opened.
TEST_P(Liars, AWorkerThatIsNoRegistrarHearsNobody) {
  RawAsker guest({"guest", -1, {}}, credentials("guest"));
  const absl::Status refused = guest.open(worker(1).address());
  EXPECT_THAT(std::string(refused.message()), HasSubstr("does not hold the job's list"));
}

TEST_P(Liars, AGuestThatIsNoMemberSaysWhatItLikes) {
  RawAsker guest({"guest", -1, {}}, credentials("guest"));
  ASSERT_TRUE(guest.open(registrar()).ok());
  for (const WorkerInfo& other : honest()) {
    guest.say(Report{other.incarnation, "it is gone"});
    guest.say(Enter{1, "a gather", {other.name, "guest"}, "x"});
  }
  guest.say(Renew{{kLastEpoch, {4712}, 1}});
  // What came before this has been looked at.
  guest.say_bytes("no message");
  EXPECT_NE(guest.wait<Refused>(), nullptr);
  for (const Answer& answer : guest.heard()) {
    EXPECT_FALSE(std::holds_alternative<List>(answer) || std::holds_alternative<Update>(answer));
    const auto* const end = std::get_if<Finished>(&answer);
    EXPECT_TRUE(end == nullptr || !end->status.ok());
  }
}

TEST_P(Liars, OneMembersReportPutsNobodyOff) {
  const auto liar = member();
  for (const WorkerInfo& other : honest()) liar->say(Report{other.incarnation, "it is gone"});
  // What came before this has been looked at.
  liar->say_bytes("no message");
  EXPECT_NE(liar->wait<Refused>(), nullptr);
}

TEST_P(Liars, ANewerListOfAMemberPutsNobodyOff) {
  const auto liar = member();
  const Version newest{kLastEpoch, {4711}, std::uint64_t{1} << 62};
  liar->say(Renew{newest});
  Return back{liar->join_as(0, 0).self, "default", 0, {0, 1, 1}, newest, newest, {}};
  liar->say(back);
  for (const WorkerInfo& other : honest()) {
    back.known = {{other.name, other.rank, {4713}}};
    liar->say(back);
  }
  EXPECT_NE(liar->wait<List>(), nullptr);
}

TEST_P(Liars, NumbersBeyondTheirBoundsAreRefused) {
  const auto liar = member();
  for (const std::uint64_t number : {~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    sinew::proto::RegistryRequest renew;
    renew.set_echo(number);
    renew.mutable_renew()->set_epoch(number);
    renew.mutable_renew()->set_count(number);
    liar->say_bytes(renew.SerializeAsString());
  }
  const auto refused = liar->wait<Refused>();
  ASSERT_NE(refused, nullptr);
  EXPECT_THAT(std::string(refused->why.message()), HasSubstr("epoch"));
  liar->say_bytes("\xff\xff no message");
}

TEST_P(Liars, AMembersIncarnationIsItsOwn) {
  // Whoever knows who is there, and has not its key.
  RawAsker thief(worker(1).info(), credentials(proves_names() ? "thief" : "worker1"));
  const absl::Status refused = thief.open(registrar());
  EXPECT_FALSE(refused.ok());
  // Nor may it join, or leave, as somebody else than whom it came as.
  RawAsker guest({"guest", -1, {}}, credentials("guest"));
  ASSERT_TRUE(guest.open(registrar()).ok());
  Join join = guest.join_as(-1, 0);
  join.self.worker = {"worker1", 1, worker(1).info().incarnation};
  guest.say(join);
  const auto wrong = guest.wait<Refused>();
  ASSERT_NE(wrong, nullptr);
  EXPECT_THAT(std::string(wrong->why.message()), HasSubstr("asks as another"));
  guest.say(Leave{});
  guest.say(Leave{true});
}

TEST_P(Liars, AFloodHoldsUpNobody) {
  const auto liar = member();
  for (std::uint64_t i = 0; i < 20000; ++i) {
    liar->say(Enter{i, absl::StrCat("gather ", i), {"liar", "worker0"}, std::string(1000, 'x')});
  }
  const std::vector<std::string> all = {"worker0", "worker1", "worker2"};
  std::vector<std::thread> barriers;
  for (int rank = 0; rank < 3; ++rank) {
    barriers.emplace_back([this, rank, all] { EXPECT_NO_THROW(worker(rank).barrier(all, 60s)); });
  }
  for (std::thread& barrier : barriers) barrier.join();
  // It has been sent away, or has stayed; then it leaves.
  if (liar->open(registrar()).ok()) liar->say(Leave{});
  EXPECT_TRUE(eventually([&] { return worker(0).workers().size() == 3; }));
  members_ = 3;
}

}  // namespace
