// The rules of both ends of a stream: in every order of events, and what is said of them.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/streams/internal/stream_receiver.h"
#include "sinew/streams/internal/stream_sender.h"
#include "sinew/tests/streams/stream_model.h"

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;
using Size = StreamReceiver::Size;

TEST(StreamExploration, EveryOrderOfEventsKeepsTheRules) {
  for (const sim::StreamWorld& world : sim::kStreamWorlds) {
    std::size_t states = 0;
    EXPECT_EQ(sim::explore(world, &states), "") << world.name;
    EXPECT_GT(states, 50u) << world.name;
    RecordProperty(world.name, static_cast<int>(states));
  }
}

TEST(StreamExploration, NoLiarIsBelieved) { EXPECT_EQ(sim::explore_liar(), ""); }

TEST(StreamSender, AnAnswerHasWhatItsPullAsksFor) {
  StreamSender sender({100, 1000});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(sender.write(100).answers.empty());
  const auto outputs = sender.pull(1, 10, 250);
  ASSERT_TRUE(outputs.ok());
  ASSERT_EQ(outputs->answers.size(), 1u);
  EXPECT_EQ(outputs->answers[0].items, 2u);
  const auto others = sender.pull(2, 1, 10000);
  ASSERT_TRUE(others.ok());
  EXPECT_EQ(others->answers[0].first, 2u);
  EXPECT_EQ(others->answers[0].items, 1u);
}

TEST(StreamSender, ALargeItemGoesAlone) {
  StreamSender sender({100, 1000});
  sender.write(5000);
  EXPECT_TRUE(sender.is_full());
  sender.write(1);
  const auto outputs = sender.pull(1, 10, 250);
  ASSERT_TRUE(outputs.ok());
  EXPECT_EQ(outputs->answers[0].items, 1u);
  EXPECT_TRUE(outputs->releases_writers);
  EXPECT_FALSE(sender.is_full());
}

TEST(StreamSender, ForNothingAndTooOftenNobodyPulls) {
  StreamSender sender({100, 1000});
  EXPECT_EQ(sender.pull(1, 0, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sender.pull(1, 1, 0).status().code(), absl::StatusCode::kInvalidArgument);
  for (std::size_t i = 0; i < StreamSender::kMostPulls; ++i) {
    EXPECT_TRUE(sender.pull(i, ~std::uint64_t{0}, ~std::uint64_t{0}).ok());
  }
  const absl::Status more = sender.pull(100, 1, 1).status();
  EXPECT_EQ(more.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(more.message(), HasSubstr("16 pulls of this stream wait already"));
  // Those that wait are as they were.
  const auto outputs = sender.write(10);
  ASSERT_EQ(outputs.answers.size(), 1u);
  EXPECT_EQ(outputs.answers[0].pull, 0u);
}

TEST(StreamReceiver, AGapIsSaid) {
  StreamReceiver receiver({10, 2, 2});
  EXPECT_EQ(receiver.begin().pulls, 2u);
  receiver.want();
  EXPECT_EQ(receiver.on_answer(3, 2, Size::kSmall, std::nullopt).served, 0u);
  const auto outputs = receiver.on_answer(5, 2, Size::kSmall, std::nullopt);
  EXPECT_TRUE(outputs.ends_readers);
  EXPECT_TRUE(outputs.stops_writer);
  EXPECT_EQ(receiver.end().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(receiver.end().message(), "items of a stream are missing, from number 0 on");
}

TEST(StreamReceiver, MoreIsUnderWayWhileAnswersAreLarge) {
  StreamReceiver receiver({10, 2, 4});
  EXPECT_EQ(receiver.begin().pulls, 2u);
  EXPECT_EQ(receiver.on_answer(0, 2, Size::kLarge, std::nullopt).pulls, 2u);
  receiver.want();
  // It is read to its end, and two are under way beside this one.
  EXPECT_EQ(receiver.want().pulls, 1u);
  EXPECT_EQ(receiver.on_answer(2, 1, Size::kSmall, std::nullopt).pulls, 0u);
  EXPECT_EQ(receiver.want().pulls, 0u);
}

TEST(StreamReceiver, AbsurdNumbersAreRefused) {
  for (const std::uint64_t first : {~std::uint64_t{0}, ~std::uint64_t{0} - 3}) {
    StreamReceiver receiver({10, 2, 2});
    receiver.begin();
    receiver.on_answer(first, 5, Size::kSmall, std::nullopt);
    ASSERT_TRUE(receiver.is_over());
    EXPECT_EQ(receiver.end().code(), absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace sinew::internal
