#include "sinew/rpc/transport/quota.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/rpc/base/rate_limited_log.h"
#include "sinew/rpc/transport/grpc/server/turns.h"
#include "sinew/rpc/transport/origin.h"

namespace sinew::internal {
namespace {

TEST(Quota, OneOriginGetsItsShareOnly) {
  const auto quota = std::make_shared<Quota>(10, 4);
  Quota::Share a = Quota::take(quota, "a", 3);
  EXPECT_TRUE(a);
  EXPECT_FALSE(Quota::take(quota, "a", 2));
  Quota::Share b = Quota::take(quota, "b", 4);
  EXPECT_TRUE(b);
  Quota::Share c = Quota::take(quota, "c", 3);
  EXPECT_TRUE(c);
  EXPECT_FALSE(Quota::take(quota, "d", 1)) << "all is taken";
  EXPECT_EQ(quota->used(), 10U);
  b.reset();
  EXPECT_TRUE(Quota::take(quota, "d", 1));
  a = Quota::Share();
  c = Quota::Share();
  EXPECT_EQ(quota->used(), 0U);
}

TEST(Quota, WhoHasNothingMayTakeMoreThanThereIs) {
  const auto quota = std::make_shared<Quota>(10, 4);
  const Quota::Share large = Quota::take(quota, "a", 100, Quota::IfAlone::kFitsAlways);
  EXPECT_TRUE(large);
  EXPECT_FALSE(Quota::take(quota, "a", 1, Quota::IfAlone::kFitsAlways));
  EXPECT_FALSE(Quota::take(quota, "b", 1));
}

TEST(Quota, OwnProcessesShareAll) {
  const auto quota = std::make_shared<Quota>(10, 2);
  EXPECT_TRUE(Quota::take(quota, kOwnUser, 9));
}

TEST(Quota, TellsOriginsApart) {
  EXPECT_EQ(origin_of("ipv4:10.1.2.3:4242"), "10.1.2.3");
  EXPECT_EQ(origin_of("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:4242"), "2001:db8:1:2::");
  EXPECT_EQ(origin_of("ipv6:[2001:db8:1:2::9]:1"), "2001:db8:1:2::");
  EXPECT_EQ(origin_of("ipv6:%5B::ffff:10.1.2.3%5D:4242"), "10.1.2.3");
  EXPECT_EQ(origin_of("fd:12"), kOwnUser);
  EXPECT_NE(origin_of("ipv6:%5Bfe80::1%25eth0%5D:1"), kOwnUser);
}

TEST(Turns, OthersWaitUntilOneIsOver) {
  const auto turns = std::make_shared<Turns>(std::make_shared<Quota>(3, 2));
  std::vector<std::string> begun;
  const auto enter = [&](const std::string& origin, const std::string& name) {
    return turns->enter(origin, [&begun, name] { begun.push_back(name); });
  };
  const std::uint64_t a1 = enter("a", "a1");
  const std::uint64_t a2 = enter("a", "a2");
  const std::uint64_t a3 = enter("a", "a3");
  const std::uint64_t a4 = enter("a", "a4");
  const std::uint64_t b1 = enter("b", "b1");
  EXPECT_EQ(begun, (std::vector<std::string>{"a1", "a2", "b1"})) << "a's do not hold up b's";
  turns->leave(a3);
  turns->leave(b1);
  EXPECT_EQ(begun.size(), 3U) << "a has its share still";
  turns->leave(a1);
  EXPECT_EQ(begun.back(), "a4") << "a3 has left";
  turns->leave(a1);
  EXPECT_EQ(begun.size(), 4U);
  turns->leave(a2);
  turns->leave(a4);
}

TEST(RateLimitedLog, CountsWhatItLeavesOut) {
  std::vector<std::string> lines;
  RateLimitedLog::Time now{};
  RateLimitedLog log([&](const std::string& line) { lines.push_back(line); }, [&] { return now; });
  for (int i = 0; i < 100; ++i) log.add("refused");
  EXPECT_EQ(lines, std::vector<std::string>{"refused"});
  now += RateLimitedLog::kInterval;
  log.add("refused again");
  log.add("and again");
  EXPECT_EQ(lines, (std::vector<std::string>{"refused",
                                             "refused again (99 more since the last such line)"}));
}

}  // namespace
}  // namespace sinew::internal
