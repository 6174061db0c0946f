// Proves that the exploration finds bugs of the rules of streams: each is switched on, in a program
// whose rules are built with SINEW_PLANTED_BUGS.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "sinew/streams/internal/stream_bugs.h"
#include "sinew/tests/streams/stream_model.h"

namespace sinew::internal::sim {
namespace {

struct Planted {
  StreamBug bug;
  const char* name;
};

constexpr Planted kBugs[] = {
    {StreamBug::kForgetsWriters, "kForgetsWriters"},
    {StreamBug::kStopForgetsWriters, "kStopForgetsWriters"},
    {StreamBug::kEndsEarly, "kEndsEarly"},
    {StreamBug::kEndsOnePull, "kEndsOnePull"},
    {StreamBug::kTakesAsItComes, "kTakesAsItComes"},
    {StreamBug::kFailureIsFinal, "kFailureIsFinal"},
    {StreamBug::kStopsPulling, "kStopsPulling"},
    {StreamBug::kPullsTooMuch, "kPullsTooMuch"},
    {StreamBug::kEndForgetsReaders, "kEndForgetsReaders"},
    {StreamBug::kLeavesWriter, "kLeavesWriter"},
};

class PlantedStreamBug : public ::testing::TestWithParam<Planted> {
 protected:
  ~PlantedStreamBug() override { stream_bug = StreamBug::kNone; }
};

TEST_P(PlantedStreamBug, IsFound) {
  stream_bug = GetParam().bug;
  std::string found;
  for (const StreamWorld& world : kStreamWorlds) {
    found = explore(world, nullptr);
    if (!found.empty()) break;
  }
  EXPECT_NE(found, "");
  RecordProperty("found", found);
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedStreamBug, ::testing::ValuesIn(kBugs),
                         [](const auto& each) { return std::string(each.param.name); });

// A writing end that lies: what is said of its answers is seen by who asks, so those bugs too.
class PlantedLiarBug : public ::testing::Test {
 protected:
  ~PlantedLiarBug() override { stream_bug = StreamBug::kNone; }
};

TEST_F(PlantedLiarBug, ItemsThatComeTwiceAreFound) {
  EXPECT_EQ(explore_liar(), "");
  stream_bug = StreamBug::kTakesTwice;
  EXPECT_NE(explore_liar(), "");
}

TEST_F(PlantedLiarBug, AGapIsFound) {
  stream_bug = StreamBug::kWaitsForGap;
  EXPECT_NE(explore_liar(), "");
}

}  // namespace
}  // namespace sinew::internal::sim
