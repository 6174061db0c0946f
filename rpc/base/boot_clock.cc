#include "sinew/rpc/base/boot_clock.h"

#include <time.h>

namespace sinew::internal {
namespace {

class SystemBootClock final : public BootClock {
 public:
  TimePoint now() const override {
    timespec time{};
    // Known to Linux since 2.6.39, and fails for unknown clocks only.
    (void)::clock_gettime(CLOCK_BOOTTIME, &time);
    return TimePoint(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

}  // namespace

const BootClock& BootClock::system() {
  // Never destroyed: threads look at it until the process is gone.
  static const auto& clock = *new SystemBootClock();
  return clock;
}

}  // namespace sinew::internal
