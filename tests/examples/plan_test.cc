#include "sinew/examples/ps_rnn/plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ps_rnn {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Plan kPlan = {{0, 2, 5}, {3, 0, 4}};

TEST(Plan, RestIsWhatIsNotDone) {
  EXPECT_EQ(steps_of(kPlan), 7);
  EXPECT_EQ(rest_of(kPlan, 0), kPlan);
  EXPECT_THAT(rest_of(kPlan, 2), ElementsAre(Piece{0, 4, 5}, Piece{3, 0, 4}));
  EXPECT_THAT(rest_of(kPlan, 3), ElementsAre(Piece{3, 0, 4}));
  EXPECT_THAT(rest_of(kPlan, 6), ElementsAre(Piece{3, 3, 4}));
  EXPECT_THAT(rest_of(kPlan, 7), IsEmpty());
  EXPECT_THAT(rest_of(kPlan, 9), IsEmpty());
}

TEST(Plan, SplitGivesEachStepToOne) {
  EXPECT_THAT(split(kPlan, 1), ElementsAre(kPlan));
  EXPECT_THAT(split(kPlan, 2), ElementsAre(Plan{{0, 2, 5}}, Plan{{3, 0, 4}}));
  EXPECT_THAT(split(kPlan, 3),
              ElementsAre(Plan{{0, 2, 4}}, Plan{{0, 4, 5}, {3, 0, 1}}, Plan{{3, 1, 4}}));
  std::int64_t steps = 0;
  for (const Plan& part : split(kPlan, 9)) {
    EXPECT_LE(steps_of(part), 1);
    steps += steps_of(part);
  }
  EXPECT_EQ(steps, 7);
  EXPECT_THAT(split({}, 2), ElementsAre(IsEmpty(), IsEmpty()));
}

}  // namespace
}  // namespace ps_rnn
