#include "sinew/rpc/membership/loss_reports.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

/// Members a, b, c... of ranks and incarnations 0, 1, 2...
std::vector<Member> members(int count) {
  std::vector<Member> all;
  for (int i = 0; i < count; ++i) {
    const WorkerInfo worker{
        std::string(1, static_cast<char>('a' + i)), i, {static_cast<std::uint64_t>(i)}};
    all.push_back({worker, "", 0});
  }
  return all;
}

class LossReportsTest : public ::testing::Test {
 protected:
  void lose_each_other(std::uint64_t one, std::uint64_t other) {
    reports_.add({one}, {other});
    reports_.add({other}, {one});
  }
  std::string next(const std::vector<Member>& among) const {
    const auto next = reports_.next_to_go(among);
    return next.has_value() ? next->name : "";
  }
  LossReports reports_;
};

TEST_F(LossReportsTest, OneMembersWordIsNotEnough) {
  EXPECT_EQ(next(members(3)), "");
  reports_.add({1}, {2});
  EXPECT_EQ(next(members(3)), "");
}

TEST_F(LossReportsTest, OfTwoTheOneOfTheHigherRankGoes) {
  lose_each_other(2, 1);
  EXPECT_EQ(next(members(3)), "c");
}

TEST_F(LossReportsTest, WhoHasLostMostGoesBeforeThose) {
  for (const std::uint64_t other : {2, 3, 4}) lose_each_other(1, other);
  EXPECT_EQ(next(members(5)), "b");
  lose_each_other(3, 4);
  EXPECT_EQ(next(members(5)), "b");
  std::vector<Member> left = members(5);
  left.erase(left.begin() + 1);
  EXPECT_EQ(next(left), "e");
}

TEST_F(LossReportsTest, WhoIsNoMemberDoesNotCount) {
  lose_each_other(1, 2);
  EXPECT_EQ(next(members(2)), "");
  reports_.keep_only(members(2));
  EXPECT_EQ(next(members(3)), "");
}

}  // namespace
}  // namespace sinew::internal
