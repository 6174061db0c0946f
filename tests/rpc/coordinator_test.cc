#include "sinew/rpc/membership/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sinew/tests/rpc/membership_world.h"

namespace sinew::internal {
namespace {

using Kind = Coordinator::Verdict::Kind;

// 0: one that comes from the name.
Member member(const std::string& name, int rank, std::uint64_t incarnation = 0) {
  if (incarnation == 0) incarnation = 1000 + static_cast<std::uint64_t>(name.at(0));
  return {{name, rank, {incarnation}}, "at:" + name, 0};
}

JoinAsk ask(const std::string& name, int rank, int world_size, std::uint64_t incarnation = 0) {
  return {member(name, rank, incarnation), "job", world_size};
}

TEST(CoordinatorTest, FixedWorldCompletesWhenAllRanksAreThere) {
  Coordinator coordinator("job", {1, 3, {member("a", 0)}}, false);
  EXPECT_EQ(coordinator.consider(ask("c", 2, 3)).kind, Kind::kWaits);
  EXPECT_EQ(coordinator.consider(ask("c", 2, 3)).kind, Kind::kWaits) << "asks again";
  EXPECT_EQ(coordinator.missing_ranks(), std::vector<int>{1});
  EXPECT_FALSE(coordinator.complete());
  EXPECT_EQ(coordinator.consider(ask("b", 1, 3)).kind, Kind::kAdmitted);
  EXPECT_TRUE(coordinator.complete());
  EXPECT_EQ(coordinator.view().members[1].worker.name, "b") << "sorted by rank";
  EXPECT_TRUE(coordinator.drop(member("c", 2).worker, Departure::kLost));
  EXPECT_FALSE(coordinator.drop(member("c", 2).worker, Departure::kLost));
  EXPECT_TRUE(coordinator.complete()) << "for ever";
  EXPECT_EQ(coordinator.consider(ask("c", 2, 3, 2)).kind, Kind::kAdmitted) << "it came back";
}

TEST(CoordinatorTest, ListsSayWhyMembersWereLost) {
  Coordinator coordinator("job", {1, 0, {member("a", 0), member("b", 1), member("c", 2)}}, false);
  coordinator.drop(member("b", 1).worker, Departure::kLost, "its process has ended\n\x01");
  coordinator.drop(member("c", 2).worker, Departure::kLost);
  proto::MemberList list;
  encode(coordinator.view(), list);
  // A list from elsewhere may have anything.
  for (std::uint64_t more = 1; more <= 100; ++more) {
    proto::LostMember& lost = *list.add_lost();
    lost.set_incarnation(more);
    lost.set_reason(std::string(5000, 'x'));
  }
  MemberView view = *decode(list);
  EXPECT_EQ(reason_of_loss(view, member("c", 2).worker.incarnation), "");
  EXPECT_EQ(view.lost.size(), 64u);
  EXPECT_LT(reason_of_loss(view, {100}).size(), 1100u);
  EXPECT_EQ(reason_of_loss(view, member("b", 1).worker.incarnation), "") << "the oldest goes";
  proto::MemberList plain;
  encode(coordinator.view(), plain);
  view = *decode(plain);
  EXPECT_EQ(reason_of_loss(view, member("b", 1).worker.incarnation),
            "its process has ended\n\\x01");
}

TEST(CoordinatorTest, RefusesWhatDoesNotFit) {
  Coordinator coordinator("job", {1, 3, {member("a", 0)}}, false);
  const std::pair<JoinAsk, std::string> cases[] = {
      {ask("x", 3, 3), "ranks of this job go from 0 to 2"},
      {ask("x", -1, 3), "rank -1"},
      {ask("x", 1, 4), "a fixed world of 4"},
      {ask("x", 1, 0), "open membership"},
      {{member("x", 1), "other", 3}, "belongs to job 'other'"},
  };
  for (const auto& [wrong, part] : cases) {
    const Coordinator::Verdict verdict = coordinator.consider(wrong);
    EXPECT_EQ(verdict.kind, Kind::kRefused) << part;
    EXPECT_THAT(std::string(verdict.refusal.message()), ::testing::HasSubstr(part));
  }
  EXPECT_EQ(coordinator.view().version, 1u);
  Coordinator open("job", {1, 0, {member("a", 0)}}, false);
  EXPECT_THAT(std::string(open.consider(ask("x", 1, 2)).refusal.message()),
              ::testing::HasSubstr("do not mix"));
}

TEST(CoordinatorTest, NobodyJoinsUnderTheIncarnationOfAnother) {
  for (const int world_size : {0, 3}) {
    const Member incumbent = member("a", 0);
    Coordinator coordinator("job", {1, world_size, {incumbent}}, false);
    const Coordinator::Verdict verdict =
        coordinator.consider(ask("x", 1, world_size, incumbent.worker.incarnation.value));
    EXPECT_EQ(verdict.kind, Kind::kRefused);
    EXPECT_EQ(verdict.refusal.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(verdict.refusal.message()),
                ::testing::HasSubstr("comes with the incarnation of worker 'a'"));
    EXPECT_EQ(coordinator.view().members.size(), 1u);
  }
}

TEST(CoordinatorTest, ProbesHoldersOfNameAndRank) {
  Coordinator coordinator("job", {1, 4, {member("a", 0), member("b", 1)}}, false);
  Coordinator::Verdict verdict = coordinator.consider(ask("b", 2, 4, 9));
  EXPECT_EQ(verdict.kind, Kind::kProbe);
  ASSERT_EQ(verdict.incumbents.size(), 1u);
  EXPECT_EQ(std::string(coordinator.refuse(ask("b", 2, 4, 9), verdict.incumbents[0]).message()),
            "name 'b' is already used by rank 1, which is alive; choose another name");
  verdict = coordinator.consider(ask("x", 1, 4));
  EXPECT_EQ(verdict.kind, Kind::kProbe);
  EXPECT_EQ(std::string(coordinator.refuse(ask("x", 1, 4), verdict.incumbents[0]).message()),
            "rank 1 is already used by worker 'b', which is alive; choose another rank for 'x'");
  EXPECT_EQ(coordinator.consider(ask("a", 1, 4, 9)).incumbents.size(), 2u);
  const std::string text = std::string(coordinator.missing_text(seconds(60)).message());
  EXPECT_THAT(text, ::testing::HasSubstr("2 of 4 workers joined within 60 s; missing ranks: 2, 3"));
  EXPECT_THAT(text, ::testing::HasSubstr("rank 2 was refused: name 'b' is already used"));
  EXPECT_TRUE(coordinator.drop(member("b", 1).worker, Departure::kLost));
  EXPECT_EQ(coordinator.consider(ask("b", 1, 4, 9)).kind, Kind::kWaits);
}

TEST(CoordinatorTest, OpenMembershipGivesTheSmallestFreeRank) {
  Coordinator coordinator("job", {1, 0, {member("a", 0), member("c", 2)}}, false);
  EXPECT_EQ(coordinator.consider(ask("b", -1, 0)).worker.rank, 1);
  EXPECT_EQ(coordinator.consider(ask("d", -1, 0)).worker.rank, 3);
  EXPECT_EQ(coordinator.consider(ask("e", 9, 0)).worker.rank, 9);
  EXPECT_EQ(coordinator.consider(ask("b", -1, 0)).worker.rank, 1) << "asks again";
  coordinator.drop(member("a", 0).worker, Departure::kLost);
  EXPECT_EQ(coordinator.consider(ask("f", -1, 0)).worker.rank, 4) << "0 is the founder's";
  EXPECT_EQ(coordinator.consider(ask("a", 0, 0)).worker.rank, 0);
}

}  // namespace
}  // namespace sinew::internal
