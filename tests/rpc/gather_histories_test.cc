#include "sinew/rpc/membership/gather_histories.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

using Values = std::vector<std::string>;

const std::vector<WorkerInfo> kMembers = {{"a", 0, {1}}, {"b", 1, {2}}};

TEST(GatherHistoriesTest, EachSetAndEpochCountsForItself) {
  GatherHistories histories;
  EXPECT_EQ(histories.begin("a,b", 0, {}).sequence, 0U);
  EXPECT_EQ(histories.begin("a,b", 0, {}).sequence, 1U);
  EXPECT_EQ(histories.begin("a,b", 5, kMembers).sequence, std::uint64_t{5} << 32);
  EXPECT_EQ(histories.begin("a,c", 0, {}).sequence, 0U);
  EXPECT_TRUE(histories.has_begun({"a,b", 1}));
  EXPECT_FALSE(histories.has_begun({"a,b", 2}));
  EXPECT_FALSE(histories.has_begun({"b,c", 0}));
}

TEST(GatherHistoriesTest, TheLastEndsOfASetAreKnown) {
  GatherHistories histories;
  GatherKey last;
  for (std::size_t i = 0; i <= GatherHistories::kEnds; ++i) {
    last = histories.begin("a,b", 0, {});
    histories.add_end(last, Values{absl::StrCat(i)});
  }
  ASSERT_NE(histories.find(last), nullptr);
  EXPECT_EQ(histories.find(last)->value(), Values{absl::StrCat(GatherHistories::kEnds)});
  EXPECT_NE(histories.find({"a,b", 1}), nullptr);
  EXPECT_EQ(histories.find({"a,b", 0}), nullptr);
}

TEST(GatherHistoriesTest, EndsAreKnownOfTheSetsThatHadThemLast) {
  GatherHistories histories;
  const auto end_one = [&histories](const std::string& names) {
    histories.add_end(histories.begin(names, 0, {}), Values{"x"});
  };
  end_one("old");
  end_one("busy");
  for (std::size_t i = 1; i < GatherHistories::kSets; ++i) {
    end_one(absl::StrCat("set", i));
    end_one("busy");
  }
  EXPECT_EQ(histories.find({"old", 0}), nullptr);
  EXPECT_NE(histories.find({"busy", GatherHistories::kSets - 1}), nullptr);
  EXPECT_NE(histories.find({"set1", 0}), nullptr);
  EXPECT_EQ(histories.begin("old", 0, {}).sequence, 1U) << "it goes on counting";
}

TEST(GatherHistoriesTest, ValuesAreKeptUpToABound) {
  GatherHistories histories;
  const std::string third(GatherHistories::kBytes / 3, 'x');
  std::vector<GatherKey> keys;
  for (const std::string names : {"a,b", "a,c", "b,c", "b,c"}) {
    keys.push_back(histories.begin(names, 0, {}));
    histories.add_end(keys.back(), Values{third});
  }
  EXPECT_EQ(histories.find(keys[0]), nullptr);
  EXPECT_EQ(histories.find(keys[1]), nullptr);
  EXPECT_NE(histories.find(keys[2]), nullptr);
  EXPECT_NE(histories.find(keys[3]), nullptr);
  for (int i = 0; i < 2; ++i) {
    keys.push_back(histories.begin("b,c", 0, {}));
    histories.add_end(keys.back(), Values{third});
  }
  EXPECT_EQ(histories.find(keys[3]), nullptr) << "also where there is one set only";
  EXPECT_NE(histories.find(keys[5]), nullptr);
  const GatherKey large = histories.begin("b,c", 0, {});
  histories.add_end(large, Values{third, third, third});
  EXPECT_EQ(histories.find(large), nullptr) << "it would take the room of all others";
  EXPECT_NE(histories.find(keys[5]), nullptr);
}

TEST(GatherHistoriesTest, EpochsOfTheLostAreForgotten) {
  GatherHistories histories;
  histories.begin("a,b", 5, kMembers);
  histories.begin("a", 6, {kMembers[0]});
  const GatherKey failed = histories.begin("a,b,c", 7, {kMembers[0], kMembers[1], {"c", 2, {3}}});
  histories.add_end(failed, absl::UnavailableError("worker 'b' was lost"));
  histories.on_lost(kMembers[1].incarnation);
  EXPECT_EQ(histories.size(), 2U);
  EXPECT_TRUE(histories.has_begun({"a", std::uint64_t{6} << 32}));
  ASSERT_NE(histories.find(failed), nullptr) << "who has not heard of it may ask";
  for (std::size_t i = 0; i < GatherHistories::kSets; ++i) {
    histories.add_end(histories.begin(absl::StrCat("set", i), 0, {}), Values{"x"});
  }
  EXPECT_EQ(histories.find(failed), nullptr);
  EXPECT_FALSE(histories.has_begun(failed));
}

}  // namespace
}  // namespace sinew::internal
