#include "sinew/rpc/base/nearest_text.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace sinew {
namespace {

using ::testing::Eq;
using ::testing::Optional;

TEST(NearestTextTest, IsReachedByTheFewestChanges) {
  const std::vector<std::string> names = {"app::scale", "app::mean", "app::Agent::select_action"};
  EXPECT_THAT(nearest_text("app::scael", names), Optional(Eq("app::scale")));
  EXPECT_THAT(nearest_text("app::scal", names), Optional(Eq("app::scale")));
  EXPECT_THAT(nearest_text("app::maen", names), Optional(Eq("app::mean")));
  EXPECT_THAT(nearest_text("app::Agent::selectAction", names),
              Optional(Eq("app::Agent::select_action")));
  EXPECT_THAT(nearest_text("lib::scale", names), Optional(Eq("app::scale")));
  EXPECT_THAT(nearest_text("app::scale", names), Optional(Eq("app::scale")));
}

TEST(NearestTextTest, NamespacesMayBeMissingOrTooMany) {
  EXPECT_THAT(nearest_text("mean", {"application::mean"}), Optional(Eq("application::mean")));
  EXPECT_THAT(nearest_text("application::mean", {"mean"}), Optional(Eq("mean")));
  EXPECT_EQ(nearest_text("an", {"application::mean"}), std::nullopt);
  EXPECT_EQ(nearest_text("", {"application::"}), std::nullopt);
}

TEST(NearestTextTest, OfSeveralTheFirst) {
  EXPECT_THAT(nearest_text("cat", {"bat", "hat"}), Optional(Eq("bat")));
  EXPECT_THAT(nearest_text("cat", {"bats", "hat", "cat"}), Optional(Eq("cat")));
}

TEST(NearestTextTest, WhatIsFarIsNotNear) {
  EXPECT_EQ(nearest_text("app::scale", {"app::remember", "x"}), std::nullopt);
  EXPECT_EQ(nearest_text("app::scale", {}), std::nullopt);
  EXPECT_EQ(nearest_text("abc", {"xyz"}), std::nullopt);
  // Eight changes at most, however long the texts are.
  const std::string text(200, 'a');
  EXPECT_THAT(nearest_text(text, {text + std::string(8, 'b')}), ::testing::Ne(std::nullopt));
  EXPECT_EQ(nearest_text(text, {text + std::string(9, 'b')}), std::nullopt);
}

TEST(NearestTextTest, LongTextsAreNearToNothing) {
  const std::string text(257, 'a');
  EXPECT_EQ(nearest_text(text, {text}), std::nullopt);
  EXPECT_EQ(nearest_text(text.substr(1), {text}), std::nullopt);
  EXPECT_NE(nearest_text(text.substr(1), {text.substr(1)}), std::nullopt);
}

// The whole table, as in the books.
std::size_t plain_distance(const std::string& from, const std::string& to) {
  std::vector<std::vector<std::size_t>> table(from.size() + 1,
                                              std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
      } else {
        table[i][j] = std::min({table[i - 1][j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1),
                                table[i - 1][j] + 1, table[i][j - 1] + 1});
      }
    }
  }
  return table[from.size()][to.size()];
}

TEST(NearestTextTest, AgreesWithTheWholeTable) {
  std::mt19937 random(7);
  const auto text = [&random](std::size_t size) {
    std::string made(size, 'a');
    for (char& letter : made) letter = static_cast<char>('a' + random() % 3);
    return made;
  };
  for (int i = 0; i < 20000; ++i) {
    const std::string from = text(random() % 30);
    const std::string to = text(random() % 30);
    const std::size_t most = std::min<std::size_t>(8, std::max<std::size_t>(2, from.size() / 3));
    EXPECT_EQ(nearest_text(from, {to}).has_value(), plain_distance(from, to) <= most)
        << from << " " << to;
  }
}

}  // namespace
}  // namespace sinew
