#include "sinew/rpc/membership/departures.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

WorkerInfo worker(std::uint64_t number) { return {absl::StrCat("w", number % 10), 0, {number}}; }

TEST(DeparturesTest, TheFirstReportCounts) {
  Departures departures;
  EXPECT_FALSE(departures.contains({1}));
  departures.add(worker(1), Departure::kLeft);
  departures.add(worker(1), Departure::kLost);
  EXPECT_EQ(departures.find({1}), Departure::kLeft);
  EXPECT_EQ(departures.find({2}), std::nullopt);
}

TEST(DeparturesTest, ANameIsThatOfItsLastOwner) {
  Departures departures;
  departures.add(worker(1), Departure::kLost);
  departures.add(worker(11), Departure::kLost);
  departures.add(worker(2), Departure::kLost);
  EXPECT_EQ(departures.last_of("w1")->incarnation.value, 11U);
  EXPECT_FALSE(departures.last_of("w3").has_value());
}

TEST(DeparturesTest, TheOldestWhomNobodyNeedsAreForgotten) {
  Departures departures;
  for (std::uint64_t i = 1; i <= Departures::kMost + 2; ++i) {
    departures.add(worker(i), Departure::kLost);
  }
  EXPECT_EQ(departures.forget({{1}, {2}}), std::vector<Incarnation>());
  EXPECT_EQ(departures.forget({{1}}), std::vector<Incarnation>({{2}}));
  EXPECT_TRUE(departures.contains({1}));
  EXPECT_FALSE(departures.contains({2}));
  EXPECT_EQ(departures.forget({}), std::vector<Incarnation>({{1}}));
  EXPECT_TRUE(departures.contains({3}));
}

}  // namespace
}  // namespace sinew::internal
