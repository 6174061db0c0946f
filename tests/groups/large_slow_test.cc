// Collectives of tensors that are larger than what 31 bits count, and the memory that a rank takes
// for them: thirteen GiB, and some minutes.

#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/support/processes.h"

using sinew::testing::ChildProcess;
using sinew::testing::free_port;
using ::testing::StartsWith;

namespace {

constexpr int kRanks = 2;
constexpr auto kPatience = std::chrono::minutes(10);

struct Large {
  std::string function;
  /// Of each rank's tensor.
  int mib = 3072;
};

class LargeTensors : public ::testing::TestWithParam<Large> {};

TEST_P(LargeTensors, AreRightAndTakeLittleBesideThem) {
  // For one operation: how much it takes is seen of processes only.
  std::vector<std::unique_ptr<ChildProcess>> ranks;
  const int port = free_port();
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_GROUPS_WORKER}));
    ranks.back()->send(absl::StrCat("group timeout_ms=600000 rank=", rank, " size=", kRanks,
                                    " init=tcp://127.0.0.1:", port));
  }
  for (const auto& rank : ranks) EXPECT_THAT(rank->receive(), StartsWith("ok rank "));
  for (const auto& rank : ranks) {
    rank->send(absl::StrCat("large mib=", GetParam().mib, " function=", GetParam().function));
  }
  for (const auto& rank : ranks) {
    // "ok data=6144 peak=6210", in MiB.
    const std::string answer = rank->receive(kPatience);
    ASSERT_THAT(answer, StartsWith("ok data="));
    const std::vector<std::string> numbers = absl::StrSplit(answer, absl::ByAnyChar("= "));
    double data = 0;
    double peak = 0;
    ASSERT_TRUE(absl::SimpleAtod(numbers.at(2), &data) && absl::SimpleAtod(numbers.at(4), &peak));
    RecordProperty("peak_per_data", absl::StrCat(peak / data));
    EXPECT_LT(peak, 3 * data) << answer;
    std::cout << GetParam().function << ": " << answer << std::endl;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, LargeTensors,
                         // All that is gathered is more than 31 bits count.
                         ::testing::Values(Large{"reduce_scatter"}, Large{"all_to_all"},
                                           Large{"broadcast"}, Large{"all_reduce"}, Large{"reduce"},
                                           Large{"scatter"}, Large{"send"},
                                           Large{"all_gather", 1100}, Large{"gather", 2100}),
                         [](const auto& test) { return test.param.function; });

}  // namespace
