#include "sinew/rpc/base/internal/nearest_names.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(NearestNames, ComeByTheLettersThatDiffer) {
  EXPECT_THAT(nearest_names("agnet", {"replay", "agent2", "agent", "agents"}, 3),
              ElementsAre("agent", "agent2", "agents"));
  EXPECT_THAT(nearest_names("", {"b", "a", "aa"}, 8), ElementsAre("a", "b", "aa"));
  EXPECT_THAT(nearest_names("x", {"a"}, 0), IsEmpty());
}

TEST(NearestNames, TextsSayHowManyThereAre) {
  EXPECT_EQ(nearest_names_text("a", {}), "none");
  EXPECT_EQ(nearest_names_text("b", {"a", "ccc", "bb"}), "'a', 'bb', 'ccc'");
  EXPECT_EQ(nearest_names_text("b", {"a", "ccc", "bb"}, 2), "'a', 'bb' and 1 more");
}

// As peers may send.
TEST(NearestNames, TakeNamesOfAnyKind) {
  const std::string large(std::size_t{1} << 20, 'x');
  EXPECT_THAT(nearest_names(large, {large + "y", "z"}, 1), ElementsAre(large + "y"));
  EXPECT_THAT(nearest_names_text("a", {"b\nc\x01"}), ::testing::Not(HasSubstr("\x01")));
}

}  // namespace
}  // namespace sinew::internal
