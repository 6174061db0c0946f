#include "sinew/rpc/planes/plane_turns.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/support/manual_clock.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PlaneTurnsTest : public ::testing::Test {
 protected:
  void enter(int connection, bool begins = true) {
    turns_->enter([this, connection, begins] {
      if (begins) begun_.push_back(connection);
      return begins;
    });
  }
  std::vector<int> begun_within(std::chrono::nanoseconds time) {
    clock_.advance(time);
    return std::exchange(begun_, {});
  }

  sinew::testing::ManualClock clock_;
  std::vector<int> begun_;
  std::shared_ptr<PlaneTurns> turns_ =
      std::make_shared<PlaneTurns>([this](std::chrono::nanoseconds delay, Task task) {
        clock_.run_at(clock_.now() + delay, std::move(task));
      });
};

TEST_F(PlaneTurnsTest, TheFirstBeginsAtOnceAndTheOthersFollow) {
  for (int i = 1; i <= 3; ++i) enter(i);
  EXPECT_THAT(begun_within(milliseconds(0)), ElementsAre(1));
  EXPECT_THAT(begun_within(PlaneTurns::kPause - milliseconds(1)), IsEmpty());
  EXPECT_THAT(begun_within(milliseconds(1)), ElementsAre(2));
  EXPECT_THAT(begun_within(PlaneTurns::kPause), ElementsAre(3));
}

TEST_F(PlaneTurnsTest, ThoseThatHaveNothingToBeginHoldUpNobody) {
  enter(1);
  enter(2, false);
  enter(3, false);
  enter(4);
  EXPECT_THAT(begun_within(PlaneTurns::kPause), ElementsAre(1, 4));
}

TEST_F(PlaneTurnsTest, WhoComesWhenAllHadTheirTurnBeginsAtOnce) {
  enter(1);
  EXPECT_THAT(begun_within(PlaneTurns::kPause), ElementsAre(1));
  EXPECT_EQ(clock_.num_timers(), 0u);
  enter(2);
  EXPECT_THAT(begun_within(milliseconds(0)), ElementsAre(2));
}

TEST_F(PlaneTurnsTest, WhoComesInThePauseWaitsForItsEnd) {
  enter(1);
  EXPECT_THAT(begun_within(milliseconds(1)), ElementsAre(1));
  enter(2);
  EXPECT_THAT(begun_within(PlaneTurns::kPause - milliseconds(2)), IsEmpty());
  EXPECT_THAT(begun_within(milliseconds(1)), ElementsAre(2));
}

// How long in all is what docs/adr/0023 says.
TEST_F(PlaneTurnsTest, ManyWaitLessForEachOther) {
  for (const auto& [connections, at_most] :
       {std::pair(30, 30), std::pair(64, 55), std::pair(100, 70), std::pair(1000, 140)}) {
    for (int i = 0; i < connections; ++i) enter(i);
    EXPECT_EQ(begun_within(std::chrono::seconds(at_most)).size(), connections);
    clock_.advance(PlaneTurns::kPause);
  }
}

TEST_F(PlaneTurnsTest, NobodyBeginsAfterTheEnd) {
  enter(1);
  turns_.reset();
  EXPECT_THAT(begun_within(PlaneTurns::kPause), IsEmpty());
}

}  // namespace
}  // namespace sinew::internal
