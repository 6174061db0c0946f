#include "sinew/rpc/worker/max_poll.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

absl::StatusOr<std::chrono::nanoseconds> with(std::optional<std::string> variable,
                                              std::chrono::nanoseconds option = 100us) {
  WorkerOptions options;
  options.max_poll = option;
  return max_poll_of(options, [&](const std::string& name) {
    return name == "SINEW_MAX_POLL_US" ? variable : std::nullopt;
  });
}

TEST(MaxPoll, IsTheSmallerOfOptionAndEnvironment) {
  EXPECT_EQ(*with(std::nullopt), 100us);
  EXPECT_EQ(*with("0"), 0us);
  EXPECT_EQ(*with("20"), 20us);
  EXPECT_EQ(*with("5000"), 100us);
  EXPECT_EQ(*with("20", 5us), 5us);
}

TEST(MaxPoll, WhatIsNoNumberIsNamed) {
  for (const char* wrong : {"", "fast", "-1", "1.5", "20us", "99999999999999"}) {
    const auto max_poll = with(wrong);
    ASSERT_FALSE(max_poll.ok()) << wrong;
    EXPECT_EQ(max_poll.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(max_poll.status().message()), HasSubstr("SINEW_MAX_POLL_US"));
  }
}

}  // namespace
}  // namespace sinew::internal
