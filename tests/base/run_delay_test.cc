#include "sinew/rpc/base/threads/run_delay.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "sinew/testing/eventually.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

bool kernel_says() { return std::ifstream("/proc/thread-self/schedstat").good(); }

/// On a thread of its own, which has not asked yet.
template <class Body>
void on_new_thread(Body body) {
  std::thread(body).join();
}

TEST(RunDelayTest, NothingAtFirstAndWithinTenMilliseconds) {
  if (!kernel_says()) GTEST_SKIP() << "the kernel does not account for it";
  on_new_thread([] {
    const SteadyClock::time_point now = SteadyClock::now();
    EXPECT_FALSE(new_run_delay(now).has_value());
    EXPECT_FALSE(new_run_delay(now + 9ms).has_value());
    const std::optional<RunDelay> lost = new_run_delay(now + 11ms);
    ASSERT_TRUE(lost.has_value());
    EXPECT_EQ(lost->time, 11ms);
    EXPECT_GE(lost->delay, 0ns);
    EXPECT_FALSE(new_run_delay(now + 20ms).has_value());
    EXPECT_TRUE(new_run_delay(now + 21ms).has_value());
  });
}

TEST(RunDelayTest, GrowsWhereThreadsShareCores) {
  if (!kernel_says()) GTEST_SKIP() << "the kernel does not account for it";
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    others.emplace_back([&] {
      while (!stop) {
      }
    });
  }
  on_new_thread([] {
    std::chrono::nanoseconds delay{0};
    EXPECT_TRUE(testing::eventually([&] {
      if (const auto lost = new_run_delay(SteadyClock::now())) delay += lost->delay;
      return delay > 1ms;
    }));
  });
  stop = true;
  for (std::thread& other : others) other.join();
}

}  // namespace
}  // namespace sinew::internal
