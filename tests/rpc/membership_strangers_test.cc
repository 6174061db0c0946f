// Guests may ask for votes and propose lists, since a worker that is being let in knows nobody: who
// is no member, or says that it is one, changes nothing by that.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/membership.pb.h"
#include "sinew/rpc/membership/ballot.h"
#include "sinew/tests/rpc/membership_world.h"

namespace sinew::internal {
namespace {

/// Somebody who calls as it likes.
class Stranger {
 public:
  Stranger(MembershipWorld& world, WorkerInfo claims)
      : world_(world), plane_(world.network, claims, "at:stranger") {}

  absl::StatusOr<std::string> call(const Worker& to, std::string_view method,
                                   const std::string& body) {
    const Future<std::string> reply =
        plane_.control_call_address(Contact::at(to.plane.address()), method, body, seconds(5));
    world_.run();
    if (!reply.done()) return absl::DeadlineExceededError("no answer");
    if (reply.error() != nullptr) return to_status(reply.error());
    return reply.value();
  }
  /// Nullopt: refused.
  std::optional<proto::VoteResponse> stand(const Worker& at, std::uint64_t term,
                                           std::uint64_t version = 0) {
    proto::VoteRequest request;
    request.set_term(term);
    request.set_version(version);
    const absl::StatusOr<std::string> answer = call(at, kVoteMethod, request.SerializeAsString());
    proto::VoteResponse response;
    if (!answer.ok() || !response.ParseFromString(*answer)) return std::nullopt;
    return response;
  }
  /// A list of the world with these in it, by rank.
  absl::StatusCode propose(const Worker& to, std::uint64_t version,
                           const std::vector<Member>& members, int world_size = 3) {
    return call(to, kProposeMethod, text_of(version, members, world_size)).status().code();
  }
  static std::string text_of(std::uint64_t version, const std::vector<Member>& members,
                             int world_size = 3) {
    proto::MemberList list;
    encode(MemberView{version, world_size, members}, list);
    return list.SerializeAsString();
  }
  Member at_rank(std::int32_t rank) const {
    return member_at(plane_.address(), {plane_.self().name, rank, plane_.self().incarnation});
  }

 private:
  MembershipWorld& world_;
  FakeControlPlane plane_;
};

Member entry_of(const Worker& worker, std::int32_t rank) {
  const WorkerInfo& self = worker.plane.self();
  return member_at(worker.plane.address(), {self.name, rank, self.incarnation});
}

constexpr std::uint64_t kNewest = std::numeric_limits<std::uint64_t>::max();

TEST(Strangers, GetNoVoteOfMembersAndNoLists) {
  Trio world(Trio::Kind::kFixed);
  const WorkerInfo leader = world.a.info();
  // One claims that it is the first one's process, under another name.
  for (const WorkerInfo& claims :
       {WorkerInfo{"stranger", 0, {99}}, WorkerInfo{"stranger", 0, leader.incarnation}}) {
    Stranger stranger(world, claims);
    for (const Worker* member : {&world.a, &world.b, &world.c}) {
      for (const std::uint64_t term : {std::uint64_t{9}, kLastTerm, kNewest}) {
        const auto vote = stranger.stand(*member, term, kNewest);
        ASSERT_TRUE(vote.has_value());
        EXPECT_FALSE(vote->granted());
        EXPECT_FALSE(vote->has_list());
        EXPECT_FALSE(vote->has_accepted());
      }
      EXPECT_EQ(stranger.propose(*member, kNewest, {stranger.at_rank(0), entry_of(*member, 1)}),
                absl::StatusCode::kPermissionDenied);
      for (const std::string_view method : {kVoteMethod, kProposeMethod}) {
        EXPECT_TRUE(absl::IsInvalidArgument(stranger.call(*member, method, "\xff").status()));
      }
    }
  }
  // Nobody has voted in a later term, or knows a later list: the next one is decided at once.
  world.lose(world.c);
  world.advance(milliseconds(100));
  EXPECT_EQ(world.a.names(), (Names{"a", "b"}));
  EXPECT_EQ(world.b.names(), (Names{"a", "b"}));
  Stranger stranger(world, {"stranger", 0, {99}});
  for (const Worker* member : {&world.a, &world.b}) {
    proto::MemberList list;
    EXPECT_TRUE(list.ParseFromString(stranger.call(*member, kListMethod, "").value_or("")));
    EXPECT_GT(list.version(), 1U);
    EXPECT_EQ(term_of(list.version()), 0U) << "nobody had to stand";
  }
  EXPECT_EQ(world.b.membership->coordinator(), leader);
}

TEST(Strangers, FindNoVotesInOpenMembership) {
  Trio world(Trio::Kind::kOpen);
  Stranger stranger(world, {"stranger", 0, {99}});
  EXPECT_FALSE(stranger.stand(world.b, 9).has_value());
  EXPECT_EQ(stranger.propose(world.b, kNewest, {stranger.at_rank(0), entry_of(world.b, 1)}),
            absl::StatusCode::kUnavailable);
}

// Who has left, and was not told so by a coordinator that is gone, asks the next one: no member.
TEST(Strangers, LeaveForThemselvesAlone) {
  Trio world(Trio::Kind::kOpen);
  const WorkerInfo claims{"stranger", -1, {99}};
  Stranger stranger(world, claims);
  for (const Worker* member : {&world.a, &world.b}) {
    for (const WorkerInfo& whose : {world.c.info(), claims}) {
      proto::LeaveRequest leave;
      leave.mutable_worker()->set_name(whose.name);
      leave.mutable_worker()->set_rank(whose.rank);
      leave.mutable_worker()->set_incarnation(whose.incarnation.value);
      const auto answer = stranger.call(*member, kLeaveMethod, leave.SerializeAsString());
      EXPECT_EQ(answer.status().code(), whose.name == claims.name
                                            ? absl::StatusCode::kOk
                                            : absl::StatusCode::kPermissionDenied);
    }
    EXPECT_EQ(member->names(), (Names{"a", "b", "c"}));
  }
}

TEST(Strangers, AreNotBelievedByWhoHasAskedNobodyYet) {
  MembershipWorld world;
  const Worker& joiner = world.add("c", MembershipWorld::fixed(2, 3));
  world.advance(seconds(1));
  Stranger stranger(world, {"stranger", 0, {99}});
  EXPECT_FALSE(stranger.stand(joiner, 9).has_value());
  const std::vector<Member> both = {stranger.at_rank(0), entry_of(joiner, 2)};
  EXPECT_EQ(stranger.propose(joiner, kNewest, both), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::IsUnavailable(
      stranger.call(joiner, kUpdateMethod, Stranger::text_of(kNewest, both)).status()));
  EXPECT_EQ(joiner.outcome(), "pending");
}

/// Rank 2 has asked rank 0, which waits for rank 1.
class StrangersAtJoiner : public ::testing::Test {
 protected:
  StrangersAtJoiner()
      : leader(world.add("a", MembershipWorld::fixed(0, 3))),
        joiner(world.add("c", MembershipWorld::fixed(2, 3))) {
    world.advance(seconds(1));
  }

  MembershipWorld world;
  Worker& leader;
  Worker& joiner;
};

TEST_F(StrangersAtJoiner, AreNotBelievedAsLongAsWhomItHasAskedAnswers) {
  Stranger stranger(world, {"stranger", 1, {99}});
  const auto vote = stranger.stand(joiner, 9, kNewest);
  ASSERT_TRUE(vote.has_value());
  EXPECT_FALSE(vote->granted());
  EXPECT_EQ(stranger.propose(joiner, kNewest, {stranger.at_rank(1), entry_of(joiner, 2)}),
            absl::StatusCode::kUnavailable);
  world.add("b", MembershipWorld::fixed(1, 3));
  world.advance(seconds(1));
  EXPECT_EQ(joiner.outcome(), "ok");
  EXPECT_EQ(joiner.names(), (Names{"a", "b", "c"}));
}

TEST_F(StrangersAtJoiner, WhoIsBelievedThenIsAMemberAsItSays) {
  world.lose(leader);
  world.advance(seconds(1));
  Stranger next(world, {"b", 1, {99}});
  const std::vector<Member> both = {next.at_rank(1), entry_of(joiner, 2)};
  EXPECT_FALSE(next.stand(joiner, kLastTerm + 1)->granted()) << "no list is of such a term";
  EXPECT_TRUE(next.stand(joiner, 9)->granted());
  EXPECT_FALSE(next.stand(joiner, 9)->granted()) << "one vote in each term";
  // It accepts lists of that term alone, and such as concern it.
  const std::uint64_t version = first_version_of(9);
  constexpr auto kRefused = absl::StatusCode::kUnavailable;
  EXPECT_EQ(next.propose(joiner, first_version_of(8), both), kRefused);
  EXPECT_EQ(next.propose(joiner, version, {both[0]}), kRefused);
  EXPECT_EQ(next.propose(joiner, version, {both[1]}), kRefused);
  EXPECT_EQ(next.propose(joiner, version, both, 2), kRefused);
  EXPECT_FALSE(next.stand(joiner, 10, version)->has_accepted());
  EXPECT_EQ(next.propose(joiner, first_version_of(10), both), absl::StatusCode::kOk);
  // Who stands after that takes over what it has accepted.
  EXPECT_TRUE(next.stand(joiner, 11)->has_accepted());
}

}  // namespace
}  // namespace sinew::internal
