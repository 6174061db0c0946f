// Damaged messages, for each decoder the same ones in every run. tools/fuzz looks for more.

#include <cstdlib>
#include <exception>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "sinew/tests/fuzz/target.h"
#include "sinew/tests/support/mutate.h"

namespace sinew::fuzz {

void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

namespace {

// SINEW_FUZZ_RUNS: more than these.
int runs() {
  int runs = 20'000;
  const char* const asked = std::getenv("SINEW_FUZZ_RUNS");
  if (asked != nullptr && !absl::SimpleAtoi(asked, &runs)) {
    throw std::invalid_argument("SINEW_FUZZ_RUNS is no number");
  }
  return runs;
}

class Fuzz : public ::testing::TestWithParam<Target> {
 private:
  // Protocol Buffers would log each text that is not UTF-8.
  const google::protobuf::LogSilencer silencer_;
};

TEST_P(Fuzz, SeedsAreTaken) {
  for (const std::string& seed : GetParam().seeds()) {
    EXPECT_TRUE(GetParam().feed(seed)) << absl::CHexEscape(seed);
  }
}

TEST_P(Fuzz, DamageEndsInAnErrorOrReadsTheSame) {
  const std::vector<std::string> seeds = GetParam().seeds();
  testing::SplitMix64 random(1);
  const int all = runs();
  int taken = 0;
  for (int i = 0; i < all; ++i) {
    const std::string bytes = testing::mutate(seeds, random);
    try {
      if (GetParam().feed(bytes)) ++taken;
    } catch (const std::exception& error) {
      FAIL() << error.what() << " does not hold for " << absl::CHexEscape(bytes);
    }
  }
  // Both ways are taken: some damage does not matter, and most of it does.
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, all);
}

INSTANTIATE_TEST_SUITE_P(All, Fuzz, ::testing::ValuesIn(all_targets()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sinew::fuzz
