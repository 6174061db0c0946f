#include "sinew/rpc/base/boot_clock.h"

#include <time.h>

#include <chrono>
#include <type_traits>

#include "gtest/gtest.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/tests/support/manual_clock.h"

namespace sinew::internal {
namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

static_assert(!std::is_convertible_v<Clock::TimePoint, BootClock::TimePoint>,
              "a deadline is no end of a lease");

nanoseconds system_time(clockid_t id) {
  timespec time{};
  EXPECT_EQ(::clock_gettime(id, &time), 0);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

TEST(BootClockTest, IsTheSystemsTimeSinceItsStartWithSuspensions) {
  const nanoseconds before = system_time(CLOCK_BOOTTIME);
  const BootClock::TimePoint now = BootClock::system().now();
  EXPECT_GE(now.time_since_epoch(), before);
  EXPECT_LE(now.time_since_epoch(), system_time(CLOCK_BOOTTIME));
  EXPECT_GE(now.time_since_epoch(), Clock::system().now().time_since_epoch() - 1min);
}

TEST(ManualBootClockTest, GoesOnWhileTheMachineIsSuspended) {
  testing::ManualClock clock;
  testing::ManualBootClock boot(clock);
  const Clock::TimePoint start = clock.now();
  const BootClock::TimePoint boot_start = boot.now();
  bool ran = false;
  clock.run_at(start + 2s, [&] { ran = true; });
  clock.advance(1s);
  EXPECT_EQ(boot.now() - boot_start, 1s);
  boot.suspend(20s);
  EXPECT_EQ(clock.now() - start, 1s);
  EXPECT_EQ(boot.now() - boot_start, 21s);
  EXPECT_FALSE(ran);
  clock.advance(1s);
  EXPECT_EQ(boot.now() - boot_start, 22s);
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace sinew::internal
