// The checker of histories, by histories that are right and wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sinew/tests/optim/history.h"

namespace testoptim {
namespace {

using ::testing::HasSubstr;

// Steps 1 and 2 are lost, and made again in the other order.
std::vector<Acknowledged> right() {
  return {{0, 0, {1, 1}}, {1, 0, {2, 3}}, {2, 0, {3, 2}}, {2, 1, {2, 2}}, {1, 1, {3, 3}}};
}
const std::vector<std::int64_t> kLoaded = {0, 1};

TEST(CheckHistory, FindsNothingWrong) { EXPECT_EQ(check_history(right(), kLoaded, 3), ""); }

TEST(CheckHistory, FindsWhatIsMissing) {
  std::vector<Acknowledged> history = right();
  history.pop_back();
  EXPECT_THAT(check_history(history, kLoaded, 3), HasSubstr("step 1 is not there"));
  EXPECT_THAT(check_history(history, kLoaded, 3), HasSubstr("owner 0 has a step of version 3"));
}

TEST(CheckHistory, FindsWhatIsThereTwice) {
  std::vector<Acknowledged> history = right();
  history.push_back({0, 1, {4, 4}});
  EXPECT_THAT(check_history(history, kLoaded, 3), HasSubstr("step 0 is there twice"));
  history.back() = {7, 1, {3, 4}};
  EXPECT_THAT(check_history(history, kLoaded, 3), HasSubstr("owner 0 has version 3 twice"));
}

TEST(CheckHistory, FindsOwnersThatDisagree) {
  std::vector<Acknowledged> history = right();
  history[1].versions = {2, 1};
  EXPECT_THAT(check_history(history, kLoaded, 3), HasSubstr("lost at some owners only"));
}

}  // namespace
}  // namespace testoptim
