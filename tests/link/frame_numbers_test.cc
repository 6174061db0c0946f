#include "sinew/rpc/link/frame_numbers.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sinew::internal {

std::ostream& operator<<(std::ostream& out, const NumberRange& range) {
  return out << range.first << ".." << range.last;
}

namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Arrival = FrameNumbers::Arrival;

NumberRange range(std::uint64_t first, std::uint64_t last) { return {first, last}; }

TEST(FrameNumbers, runs_that_touch_become_one) {
  FrameNumbers numbers;
  for (const std::uint64_t number : {1, 2, 5, 4, 3, 9}) {
    EXPECT_EQ(numbers.add(number), Arrival::kNew) << number;
  }
  EXPECT_THAT(numbers.all(), ElementsAre(range(1, 5), range(9, 9)));
  EXPECT_TRUE(numbers.contains(3));
  EXPECT_FALSE(numbers.contains(6));
}

TEST(FrameNumbers, what_is_to_be_reported_later_counts_as_arrived) {
  FrameNumbers numbers;
  numbers.add(1);
  EXPECT_EQ(numbers.add(2, FrameNumbers::Report::kLater), Arrival::kNew);
  EXPECT_EQ(numbers.add(2), Arrival::kRepeated);
  EXPECT_THAT(numbers.all(), ElementsAre(range(1, 2)));
  EXPECT_THAT(numbers.take_unreported(), ElementsAre(range(1, 1)));
  numbers.report(2);
  EXPECT_THAT(numbers.take_unreported(), ElementsAre(range(2, 2)));
}

TEST(FrameNumbers, a_number_is_new_once) {
  FrameNumbers numbers;
  for (const std::uint64_t number : {3, 1, 2}) numbers.add(number);
  for (const std::uint64_t number : {1, 2, 3}) {
    EXPECT_EQ(numbers.add(number), Arrival::kRepeated) << number;
  }
}

TEST(FrameNumbers, the_first_and_the_last_number_that_there_is_are_refused) {
  FrameNumbers numbers;
  EXPECT_EQ(numbers.add(0), Arrival::kRefused);
  EXPECT_EQ(numbers.add(UINT64_MAX), Arrival::kRefused);
  EXPECT_EQ(numbers.add(UINT64_MAX - 1), Arrival::kNew);
  EXPECT_FALSE(numbers.contains(UINT64_MAX));
}

TEST(FrameNumbers, so_many_gaps_are_borne_and_no_more) {
  FrameNumbers numbers;
  for (std::uint64_t i = 1; i <= FrameNumbers::kMaxRuns; ++i) {
    ASSERT_EQ(numbers.add(2 * i), Arrival::kNew);
  }
  EXPECT_EQ(numbers.add(2 * FrameNumbers::kMaxRuns + 2), Arrival::kRefused);
  EXPECT_EQ(numbers.add(3), Arrival::kNew) << "what closes a gap is always taken";
  EXPECT_EQ(numbers.add(2 * FrameNumbers::kMaxRuns + 2), Arrival::kNew);
}

TEST(FrameNumbers, what_is_new_is_reported_once) {
  FrameNumbers numbers;
  for (const std::uint64_t number : {1, 2, 7}) numbers.add(number);
  EXPECT_THAT(numbers.take_unreported(), ElementsAre(range(1, 2), range(7, 7)));
  EXPECT_FALSE(numbers.has_unreported());
  numbers.add(7);
  EXPECT_THAT(numbers.take_unreported(), IsEmpty());
  numbers.add(3);
  EXPECT_THAT(numbers.take_unreported(), ElementsAre(range(3, 3)));
}

TEST(FrameNumbers, a_report_is_short_and_the_rest_follows) {
  FrameNumbers numbers;
  for (std::uint64_t i = 1; i <= FrameNumbers::kMaxReported + 1; ++i) numbers.add(2 * i);
  EXPECT_EQ(numbers.take_unreported().size(), FrameNumbers::kMaxReported);
  EXPECT_TRUE(numbers.has_unreported());
  const std::uint64_t last = 2 * (FrameNumbers::kMaxReported + 1);
  EXPECT_THAT(numbers.take_unreported(), ElementsAre(range(last, last)));
  EXPECT_FALSE(numbers.has_unreported());
}

}  // namespace
}  // namespace sinew::internal
