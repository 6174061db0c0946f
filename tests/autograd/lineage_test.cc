#include "sinew/autograd/internal/lineage.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sinew::internal {
namespace {

constexpr Incarnation kA{1};
constexpr Incarnation kB{2};
constexpr Incarnation kC{3};

std::vector<std::uint64_t> messages(const std::vector<MessageEdges>& edges) {
  std::vector<std::uint64_t> result;
  for (const MessageEdges& one : edges) result.push_back(one.message);
  return result;
}

TEST(Lineage, NewsGoToEachPeerOnceAndNotBackToWhoToldThem) {
  Lineage lineage;
  lineage.add({kA, 1, 0}, {}, kA);
  lineage.add({kB, 7, 0}, {}, kB);
  EXPECT_EQ(lineage.news_for(kB, 10).size(), 1U);
  EXPECT_EQ(lineage.news_for(kB, 10).size(), 0U);
  EXPECT_EQ(lineage.news_for(kC, 1).size(), 1U);
  EXPECT_EQ(lineage.news_for(kC, 10).size(), 1U);
  lineage.add({kC, 1, 0}, {}, kB);
  EXPECT_EQ(lineage.news_for(kC, 10).size(), 0U);
}

TEST(LiveEdges, FollowsWhatIsKnownAndAsksForTheRest) {
  Lineage lineage;
  // A's root depends on B's message 1, which depends on C's 1 by way of B's 0, and on A's 5.
  lineage.add({kB, 1, 2}, {{{kA, 5, 0}}, {{kB, 0, 0}}}, kB);
  lineage.add({kB, 0, 0}, {{{kC, 1, 1}}, {}}, kB);
  lineage.add({kA, 5, 0}, {}, kA);
  LiveEdges live(kA);
  live.start({{{kB, 1, 2}}, {}});
  auto unknown = live.follow(lineage);
  ASSERT_EQ(unknown.size(), 1U);
  EXPECT_THAT(unknown[kC], ::testing::ElementsAre(EdgeId{kC, 1, 1}));
  lineage.add({kC, 1, 1}, {{{kA, 5, 0}, {kA, 5, 1}}, {}}, kC);
  lineage.add({kA, 5, 1}, {}, kA);
  EXPECT_TRUE(live.follow(lineage).empty());
  auto by_sender = live.by_sender();
  // Nothing is sent along what an edge only stands for.
  EXPECT_THAT(messages(by_sender[kB]), ::testing::ElementsAre(1));
  EXPECT_THAT(messages(by_sender[kA]), ::testing::ElementsAre(5));
  EXPECT_THAT(by_sender[kA][0].indexes, ::testing::ElementsAre(0, 1));
  EXPECT_THAT(messages(by_sender[kC]), ::testing::ElementsAre(1));
  EXPECT_TRUE(live.only_from_self(kB));
  EXPECT_FALSE(live.only_from_self(kC));
}

}  // namespace
}  // namespace sinew::internal
