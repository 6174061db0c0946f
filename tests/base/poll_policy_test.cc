#include "sinew/rpc/base/threads/poll_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;
using Duration = PollPolicy::Duration;
using TimePoint = PollPolicy::TimePoint;
using Whose = PollPolicy::Waits;

constexpr Duration kPrice = 30us;
constexpr Duration kLongest = 8 * kPrice;

/// Waits one after the other, with what the policy makes of them.
class Waits {
 public:
  explicit Waits(Duration max_poll = Duration::max(), Whose whose = Whose::kForItself,
                 Duration price = kPrice)
      : policy_(max_poll, whose), price_(price) {}

  PollPolicy& policy() { return policy_; }
  TimePoint now() const { return now_; }
  void pass(Duration time) { now_ += time; }
  Duration next_poll() { return policy_.begin(now_, price_); }

  /// A wait for what comes after `wait`. How long it polled.
  Duration wait(Duration wait) {
    const Duration poll = next_poll();
    EXPECT_GE(poll, 0us);
    const bool comes_in_time = poll > 0us && wait <= poll;
    const Duration waited = comes_in_time ? wait : wait + price_;
    if (comes_in_time) {
      policy_.on_polled(waited);
    } else {
      policy_.on_slept(waited, std::min(poll, wait));
    }
    now_ += waited;
    return std::min(poll, wait);
  }
  /// So many of them. How long the last one polled.
  Duration wait(Duration time, int times) {
    Duration polled{0};
    for (int i = 0; i < times; ++i) polled = wait(time);
    return polled;
  }

 private:
  PollPolicy policy_;
  const Duration price_;
  TimePoint now_ = TimePoint() + 1h;
};

TEST(PollPolicy, SleepsUntilItKnowsBetter) { EXPECT_EQ(Waits().next_poll(), 0us); }

TEST(PollPolicy, ShortWaitsArePolledForWhateverAWakeUpTakes) {
  for (const Duration price : {5us, 30us, 100us, 300us}) {
    Waits waits(Duration::max(), Whose::kForItself, price);
    waits.wait(price, 2);
    EXPECT_EQ(waits.next_poll(), 8 * price);
    Waits others(Duration::max(), Whose::kForOthers, price);
    others.wait(price, 2);
    EXPECT_EQ(others.next_poll(), 2 * price);
  }
}

TEST(PollPolicy, LongWaitsSleepAtOnce) {
  Waits waits;
  waits.wait(kLongest + 1us, 20);
  EXPECT_EQ(waits.next_poll(), 0us);
}

TEST(PollPolicy, WaitsThatGetLongerAreNotPolledForAnyMore) {
  Waits waits;
  waits.wait(10us, 100);
  Duration in_vain{0};
  for (int i = 0; i < 1000; ++i) in_vain += waits.wait(10ms);
  EXPECT_GT(in_vain, 0us);
  EXPECT_LT(in_vain, 20 * kLongest) << "of 1000 waits some at the beginning";
  EXPECT_EQ(waits.next_poll(), 0us);
}

TEST(PollPolicy, WaitsThatGetShorterAreSoonPolledFor) {
  Waits waits;
  waits.wait(10ms, 1000);
  EXPECT_EQ(waits.wait(10us, 30), 10us);
}

TEST(PollPolicy, AFewShortWaitsAmongLongOnesDoNotPay) {
  Waits waits;
  Duration polled{0};
  for (int i = 0; i < 1000; ++i) polled += waits.wait(i % 10 == 0 ? 40us : 5ms);
  EXPECT_LT(polled, 20 * kLongest);
}

TEST(PollPolicy, AFewLongWaitsAmongShortOnesDoNoHarm) {
  Waits waits;
  int polled = 0;
  for (int i = 0; i < 1000; ++i) polled += waits.wait(i % 10 == 0 ? 5ms : 10us) > 0us ? 1 : 0;
  EXPECT_GT(polled, 900);
}

TEST(PollPolicy, WithoutATimeForItNothingIsPolledFor) {
  for (const Duration max_poll : {Duration(0us), Duration(-1us)}) {
    Waits waits(max_poll);
    waits.wait(0us, 100);
    EXPECT_EQ(waits.next_poll(), 0us);
  }
}

TEST(PollPolicy, MoreTimeForItNeverMeansLess) {
  for (Duration wait = 1us; wait < 400us; wait += 3us) {
    Duration last{0};
    for (const Duration max_poll :
         {Duration(1ns), Duration(5us), Duration(40us), Duration(100us), Duration(200us),
          Duration(1ms), Duration(1h), Duration::max()}) {
      Waits waits(max_poll);
      waits.wait(wait, 40);
      const Duration poll = waits.next_poll();
      EXPECT_GE(poll, last) << wait.count() << " ns, at most " << max_poll.count();
      EXPECT_LE(poll, max_poll);
      last = poll;
    }
  }
}

TEST(PollPolicy, WhoWaitsForOthersPollsForLessLong) {
  for (const auto& [wait, for_itself, for_others] :
       {std::tuple(15us, true, true), std::tuple(70us, true, false), std::tuple(230us, true, false),
        std::tuple(500us, false, false)}) {
    Waits itself(Duration::max(), Whose::kForItself);
    Waits others(Duration::max(), Whose::kForOthers);
    itself.wait(wait, 100);
    others.wait(wait, 100);
    EXPECT_EQ(itself.next_poll() > 0us, for_itself) << wait.count();
    EXPECT_EQ(others.next_poll() > 0us, for_others) << wait.count();
  }
}

TEST(PollPolicy, AsksWhoHadTheCoreWhereItWasAwayForASwitch) {
  Waits waits;
  waits.wait(10us, 20);
  EXPECT_FALSE(waits.policy().may_be_taken(kPrice / 8));
  EXPECT_TRUE(waits.policy().may_be_taken(kPrice / 4));
}

TEST(PollPolicy, WhoseCoreWasTakenForLongDoesNotPollForAWhile) {
  Waits waits;
  waits.wait(10us, 20);
  waits.policy().on_core_taken(waits.now(), 150us);
  EXPECT_EQ(waits.next_poll(), 0us);
  waits.pass(64 * 150us - 1us);
  EXPECT_EQ(waits.next_poll(), 0us);
  waits.pass(1us);
  EXPECT_GT(waits.next_poll(), 0us);
}

TEST(PollPolicy, AThreadThatLooksAfterSomethingNowAndThenIsNotInTheWay) {
  Waits waits;
  waits.wait(10us, 20);
  for (int i = 0; i < 10; ++i) {
    waits.policy().on_core_taken(waits.now(), 10us);
    EXPECT_GT(waits.next_poll(), 0us) << i;
    waits.pass(16 * 10us);
  }
  waits.pass(-1us);
  waits.policy().on_core_taken(waits.now(), 10us);
  EXPECT_EQ(waits.next_poll(), 0us) << "twice in short";
}

// Both ends sleep, so each one's wait is the other one's wake-up and service. A rule that never
// looks for that long would leave them asleep for ever.
TEST(PollPolicy, TwoEndsThatSleepWakeEachOther) {
  for (const Duration price : {5us, 30us, 100us, 300us}) {
    for (const int service : {0, 1, 2, 4}) {
      PollPolicy caller(Duration::max(), Whose::kForItself);
      PollPolicy server(Duration::max(), Whose::kForOthers);
      const Duration works = service * price / 4;
      const TimePoint now = TimePoint() + 1h;
      bool caller_polls = false;
      bool server_polls = false;
      for (int call = 0; call < 40; ++call) {
        // A call; then what passes at the server until the next one.
        caller_polls = caller.begin(now, price) > 0us;
        server_polls = server.begin(now, price) > 0us;
        const Duration until_answer = works + (server_polls ? 0us : price);
        const Duration until_call = works / 4 + (caller_polls ? 0us : price);
        if (caller_polls) {
          caller.on_polled(until_answer);
        } else {
          caller.on_slept(until_answer + price, 0us);
        }
        if (server_polls) {
          server.on_polled(until_call);
        } else {
          server.on_slept(until_call + price, 0us);
        }
      }
      EXPECT_TRUE(caller_polls && server_polls) << price.count() << " ns, service " << service;
    }
  }
}

// ---- Against the best that one bound for all waits could have done.

/// What polling for up to `bound` in each wait costs, in nanoseconds, as the policy weighs it.
double cost(const std::vector<Duration>& waits, double weight,
            const std::function<Duration(Duration)>& polled) {
  double total = 0;
  for (const Duration wait : waits) {
    const Duration poll = polled(wait);
    total += weight * static_cast<double>(poll.count());
    if (poll < wait) total += static_cast<double>(kPrice.count());
  }
  return total;
}

std::vector<Duration> trace(std::mt19937& random, int kind) {
  std::exponential_distribution<double> exponential(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  const double mean_us = std::exp(uniform(random) * 8);
  const double other_us = std::exp(uniform(random) * 8);
  const double share = uniform(random);
  std::vector<Duration> waits;
  for (int i = 0; i < 1200; ++i) {
    double us = mean_us;
    if (kind == 0) us = mean_us * exponential(random);
    if (kind == 1) us = uniform(random) < share ? mean_us : other_us;
    if (kind == 2) us = (i / 300 % 2 == 0 ? mean_us : other_us) * (0.8 + 0.4 * uniform(random));
    waits.push_back(Duration(static_cast<Duration::rep>(us * 1000) + 1));
  }
  return waits;
}

TEST(PollPolicy, CostsAtMostTwiceTheBestBoundInHindsight) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const bool for_others = seed >= 150;
    const double weight = for_others ? 0.5 : 0.125;
    std::mt19937 random(seed);
    const std::vector<Duration> waits = trace(random, static_cast<int>(seed % 3));
    double best = std::numeric_limits<double>::max();
    for (Duration bound : {0us, 3us, 6us, 12us, 25us, 50us, 100us, 200us}) {
      best =
          std::min(best, cost(waits, weight, [&](Duration wait) { return std::min(bound, wait); }));
    }
    Waits with_policy(Duration::max(), for_others ? Whose::kForOthers : Whose::kForItself);
    const double ours = cost(waits, weight, [&](Duration wait) { return with_policy.wait(wait); });
    EXPECT_LT(ours, 2 * best + 50 * 30'000) << "seed " << seed;
  }
}

}  // namespace
}  // namespace sinew::internal
