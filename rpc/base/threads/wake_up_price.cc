#include "sinew/rpc/base/threads/wake_up_price.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Duration = WakeUpPrice::Duration;

constexpr auto kMeasuringTime = std::chrono::milliseconds(2);
// Enough for a thread that has been told to park.
constexpr auto kParked = std::chrono::microseconds(20);
// A thread that waits for a call has more to catch up on than one that looks at a clock: its
// caches, and the network's part. To sleep cost each end of a call 40 us where this took 15.
constexpr int kOfACall = 2;
// Fewer say that the other core is busy, and not what it takes to wake it.
constexpr std::size_t kFew = 8;
// Where nothing can be measured.
constexpr Duration kUnmeasured = std::chrono::microseconds(30);
// No wake-up takes less; what is measured may be the clock.
constexpr Duration kLeast = std::chrono::microseconds(1);

// One that the calling thread may run on, and does not. None: there is none.
std::optional<int> other_core() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return std::nullopt;
  const int here = sched_getcpu();
  for (int i = 1; i < CPU_SETSIZE; ++i) {
    const int core = (here + i) % CPU_SETSIZE;
    if (CPU_ISSET(static_cast<std::size_t>(core), &cores)) return core;
  }
  return std::nullopt;
}

/// A thread that is parked on a core of its own, and notes when it runs.
class Parked {
 public:
  Parked(int core, SteadyClock::time_point until)
      : until_(until), thread_([this, core] { run(core); }) {}
  ~Parked() {
    {
      MutexLock lock(mutex_);
      ends_ = true;
      changed_.notify_one();
    }
    thread_.join();
  }

  /// Lets it park, and wakes it. The calling thread stays awake, so that no other thread gets its
  /// core. nullopt: the time is over.
  std::optional<Duration> wake() {
    // Until it is where it belongs it may need this one's core.
    while (!is_there_ && SteadyClock::now() < until_) std::this_thread::yield();
    const auto parked = SteadyClock::now() + kParked;
    if (!pass_until([&] { return SteadyClock::now() > parked; })) return std::nullopt;
    const auto woken = SteadyClock::now().time_since_epoch();
    {
      MutexLock lock(mutex_);
      is_woken_ = true;
      changed_.notify_one();
    }
    if (!pass_until([this] { return ran_at_.load() != Duration(0); })) return std::nullopt;
    return ran_at_.exchange(Duration(0)) - woken;
  }

 private:
  template <class Done>
  bool pass_until(const Done& done) const {
    while (!done()) {
      if (SteadyClock::now() > until_) return false;
    }
    return true;
  }
  void run(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(static_cast<std::size_t>(core), &cores);
    // Where it is not allowed the kernel chooses, which is right most of the time.
    pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
    is_there_ = true;
    MutexLock lock(mutex_);
    while (!ends_) {
      if (std::exchange(is_woken_, false)) ran_at_ = SteadyClock::now().time_since_epoch();
      changed_.wait(mutex_);
    }
  }

  const SteadyClock::time_point until_;
  Mutex mutex_;
  CondVar changed_;
  bool is_woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> is_there_{false};
  std::atomic<Duration> ran_at_{Duration(0)};
  std::thread thread_;
};

}  // namespace

WakeUpPrice::Call WakeUpPrice::Call::now() { return {SteadyClock::now(), sched_getcpu()}; }

Duration WakeUpPrice::measure() {
  const std::optional<int> core = other_core();
  if (!core.has_value()) return kUnmeasured;
  std::vector<Duration> took;
  try {
    Parked parked(*core, SteadyClock::now() + kMeasuringTime);
    while (const std::optional<Duration> next = parked.wake()) took.push_back(*next);
  } catch (const std::system_error&) {
    return kUnmeasured;
  }
  if (took.size() < kFew) return kUnmeasured;
  const auto middle = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
  std::nth_element(took.begin(), middle, took.end());
  return kOfACall * std::max(*middle, kLeast);
}

WakeUpPrice& WakeUpPrice::of_host() {
  static WakeUpPrice price(measure());
  return price;
}

void WakeUpPrice::on_wake_up(const Call& call) {
  if (sched_getcpu() != call.core) learn(kOfACall * (SteadyClock::now() - call.at));
}

void WakeUpPrice::learn(Duration took) {
  const Duration price = now();
  const Duration next = took > price ? price + price / 64 : price - price / 64;
  // Two threads at once may undo each other's step, which the next ones make up for.
  now_ns_.store(std::clamp(next, kLeast, std::max(most_, kLeast)).count(),
                std::memory_order_relaxed);
}

}  // namespace sinew::internal
