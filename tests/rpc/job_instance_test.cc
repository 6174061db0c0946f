#include "sinew/rpc/membership/job_instance.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace sinew::internal {
namespace {

constexpr std::uint64_t kGreatest = std::numeric_limits<std::uint64_t>::max();

TEST(JobInstanceTest, AttemptDecidesBeforeTimeAndTimeBeforeChance) {
  const std::vector<JobInstance> ascending = {{},        {0, 0, 1},         {0, 0, kGreatest},
                                              {0, 1, 0}, {0, kGreatest, 5}, {1, 0, 0},
                                              {1, 2, 3}, {kGreatest, 0, 0}};
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    for (std::size_t j = 0; j < ascending.size(); ++j) {
      SCOPED_TRACE(to_string(ascending[i]) + " and " + to_string(ascending[j]));
      EXPECT_EQ(ascending[i] < ascending[j], i < j);
      EXPECT_EQ(ascending[i] > ascending[j], i > j);
      EXPECT_EQ(ascending[i] <= ascending[j], i <= j);
      EXPECT_EQ(ascending[i] >= ascending[j], i >= j);
      EXPECT_EQ(ascending[i] == ascending[j], i == j);
      EXPECT_EQ(ascending[i] != ascending[j], i != j);
    }
  }
}

TEST(JobInstanceTest, AllZeroIsNone) {
  EXPECT_FALSE(JobInstance{}.valid());
  EXPECT_TRUE((JobInstance{1, 0, 0}).valid());
  EXPECT_TRUE((JobInstance{0, 1, 0}).valid());
  EXPECT_TRUE((JobInstance{0, 0, 1}).valid());
}

TEST(JobInstanceTest, TextAndBack) {
  const JobInstance one{0, 0x65f2a1b3c4d5e, 0x1a2b3c4d5e6f7788};
  EXPECT_EQ(to_string(one), "0-65f2a1b3c4d5e-1a2b3c4d5e6f7788");
  EXPECT_EQ(to_string(JobInstance{}), "0-0-0");
  EXPECT_EQ(to_string(JobInstance{kGreatest, kGreatest, kGreatest}),
            "ffffffffffffffff-ffffffffffffffff-ffffffffffffffff");
  for (const JobInstance& each :
       {one, JobInstance{}, JobInstance{kGreatest, kGreatest, kGreatest}, JobInstance{3, 0, 9}}) {
    const auto parsed = parse_job_instance(to_string(each));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_TRUE(*parsed == each) << to_string(*parsed);
  }
}

TEST(JobInstanceTest, OtherTextsAreRefused) {
  for (const std::string text :
       {"", "-", "--", "1", "1-2", "1-2-3-4", "1-2-", "-1-2-3", "1--3", "g-0-0", "0x1-2-3",
        "01-2-3", "1-2-A", " 1-2-3", "1-2-3 ", "1-+2-3", "10000000000000000-0-0", "1-2-3\n"}) {
    const auto parsed = parse_job_instance(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << "'" << text << "'";
  }
  EXPECT_EQ(parse_job_instance(std::string("1-2\0-3", 6)).status().message(),
            "'1-2\\x00-3' is no instance of a job");
  EXPECT_LT(parse_job_instance(std::string(100000, 'f')).status().message().size(), 500u);
}

}  // namespace
}  // namespace sinew::internal
