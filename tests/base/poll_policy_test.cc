#include "sinew/rpc/base/threads/poll_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "sinew/tests/base/recorded_waits.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;
using Duration = PollPolicy::Duration;
using TimePoint = PollPolicy::TimePoint;

constexpr Duration kMaxPoll = 200us;
// As the policy takes it to be.
constexpr Duration kWakeUp = 30us;

/// Waits one after the other, with what the policy makes of them.
class Waits {
 public:
  explicit Waits(Duration max_poll = kMaxPoll,
                 PollPolicy::Waits whose = PollPolicy::Waits::kForItself)
      : policy_(max_poll, whose) {}

  PollPolicy& policy() { return policy_; }
  TimePoint now() const { return now_; }
  void pass(Duration time) { now_ += time; }

  /// A wait for what comes after `wait`. How long it polled.
  Duration wait(Duration wait) {
    const Duration poll = policy_.begin(now_);
    EXPECT_LE(poll, kMaxPoll);
    EXPECT_GE(poll, 0us);
    const bool comes_in_time = poll > 0us && wait <= poll;
    const Duration waited = comes_in_time ? wait : wait + kWakeUp;
    if (comes_in_time) {
      policy_.on_polled(waited);
    } else {
      policy_.on_slept(waited, std::min(poll, wait));
    }
    now_ += waited;
    return std::min(poll, wait);
  }
  /// Offers the core between two looks. Whether polling may go on.
  bool gets_core_back_after(Duration time) { return policy_.may_go_on(now_ - time, now_); }
  /// So many of them. How long the last one polled.
  Duration wait(Duration time, int times) {
    Duration polled{0};
    for (int i = 0; i < times; ++i) polled = wait(time);
    return polled;
  }

 private:
  PollPolicy policy_;
  TimePoint now_ = TimePoint() + 1h;
};

TEST(PollPolicy, SleepsUntilItKnowsBetter) {
  EXPECT_EQ(PollPolicy(kMaxPoll, PollPolicy::Waits::kForItself).begin(TimePoint()), 0us);
}

TEST(PollPolicy, ShortWaitsArePolledFor) {
  Waits waits;
  waits.wait(10us, 20);
  EXPECT_GE(waits.policy().begin(waits.now()), 10us);
  EXPECT_LT(waits.policy().begin(waits.now()), 50us) << "no longer than they last";
}

TEST(PollPolicy, LongWaitsSleepAtOnce) {
  Waits waits;
  waits.wait(1ms, 20);
  EXPECT_EQ(waits.policy().begin(waits.now()), 0us);
}

TEST(PollPolicy, WaitsThatGetLongerAreNotPolledForAnyMore) {
  Waits waits;
  waits.wait(10us, 100);
  Duration in_vain{0};
  for (int i = 0; i < 1000; ++i) in_vain += waits.wait(10ms);
  EXPECT_GT(in_vain, 0us);
  EXPECT_LT(in_vain, 20 * kMaxPoll) << "of 1000 waits some at the beginning";
  EXPECT_EQ(waits.policy().begin(waits.now()), 0us);
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
  EXPECT_LT(polled, 20 * kMaxPoll);
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
    EXPECT_EQ(waits.policy().begin(waits.now()), 0us);
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
      const Duration poll = waits.policy().begin(waits.now());
      EXPECT_GE(poll, last) << wait.count() << " ns, at most " << max_poll.count();
      EXPECT_LE(poll, max_poll);
      last = poll;
    }
  }
}

TEST(PollPolicy, WhoIsInTheWayForLongDoesNotPollForAWhile) {
  Waits waits;
  waits.wait(10us, 20);
  EXPECT_FALSE(waits.gets_core_back_after(151us));
  EXPECT_EQ(waits.policy().begin(waits.now()), 0us);
  EXPECT_EQ(waits.policy().begin(waits.now() + 400us), 0us);
  EXPECT_GT(waits.policy().begin(waits.now() + 600us), 0us);
}

TEST(PollPolicy, WhoIsInTheWayForAMomentSleepsThisTime) {
  Waits waits;
  waits.wait(10us, 20);
  for (const Duration late : {36us, 150us}) {
    EXPECT_FALSE(waits.gets_core_back_after(late));
    EXPECT_GT(waits.policy().begin(waits.now()), 0us);
  }
}

TEST(PollPolicy, WhoOnlyLooksAfterSomethingIsNotInTheWay) {
  Waits waits;
  waits.wait(10us, 20);
  EXPECT_TRUE(waits.gets_core_back_after(35us));
  EXPECT_GT(waits.policy().begin(waits.now()), 0us);
}

TEST(PollPolicy, WhereMessagesComeByThePacketLatenessDoesNoHarm) {
  Waits waits;
  waits.wait(10us, 20);
  for (int i = 0; i < 20; ++i) waits.policy().on_messages(8);
  EXPECT_TRUE(waits.gets_core_back_after(1ms));
  EXPECT_FALSE(waits.gets_core_back_after(1001us)) << "that is somebody else's work";
  for (int i = 0; i < 40; ++i) waits.policy().on_messages(1);
  EXPECT_FALSE(waits.gets_core_back_after(36us));
}

TEST(PollPolicy, WhoWaitsForOthersPollsForLessLong) {
  for (const auto& [wait, for_itself, for_others] :
       {std::tuple(15us, true, true), std::tuple(70us, true, false), std::tuple(150us, true, false),
        std::tuple(500us, false, false)}) {
    Waits itself(kMaxPoll, PollPolicy::Waits::kForItself);
    Waits others(kMaxPoll, PollPolicy::Waits::kForOthers);
    itself.wait(wait, 100);
    others.wait(wait, 100);
    EXPECT_EQ(itself.policy().begin(itself.now()) > 0us, for_itself) << wait.count();
    EXPECT_EQ(others.policy().begin(others.now()) > 0us, for_others) << wait.count();
  }
}

TEST(PollPolicy, WhoWaitsForCoresItselfLeavesThemToOthers) {
  Waits waits;
  waits.wait(10us, 20);
  waits.policy().on_run_delay(waits.now(), 500us, 10ms);
  EXPECT_GT(waits.policy().begin(waits.now()), 0us);
  // One reading alone may be chance; two of three are not.
  waits.policy().on_run_delay(waits.now(), 1ms, 10ms);
  EXPECT_GT(waits.policy().begin(waits.now()), 0us);
  waits.policy().on_run_delay(waits.now(), 500us, 10ms);
  waits.policy().on_run_delay(waits.now(), 1ms, 10ms);
  EXPECT_EQ(waits.policy().begin(waits.now()), 0us);
  EXPECT_EQ(waits.policy().begin(waits.now() + 99ms), 0us);
  EXPECT_GT(waits.policy().begin(waits.now() + 101ms), 0us);
  // What was delayed before counts no more once the latest reading is good.
  waits.pass(1s);
  waits.policy().on_run_delay(waits.now(), 500us, 10ms);
  EXPECT_GT(waits.policy().begin(waits.now()), 0us);
  // Many messages at a time make up for it.
  for (int i = 0; i < 20; ++i) waits.policy().on_messages(8);
  for (int i = 0; i < 3; ++i) waits.policy().on_run_delay(waits.now(), 5ms, 10ms);
  EXPECT_GT(waits.policy().begin(waits.now()), 0us);
}

TEST(PollPolicy, PausesGetLongerWhereACoreIsWantedAgainAndAgain) {
  Waits waits;
  waits.wait(10us, 20);
  Duration last{0};
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(waits.gets_core_back_after(151us));
    Duration pause{0};
    while (waits.policy().begin(waits.now() + pause) == 0us) pause += 100us;
    EXPECT_GE(pause, last);
    EXPECT_LE(pause, 200ms);
    last = pause;
    waits.pass(pause);
    waits.wait(10us, 10);
  }
  EXPECT_GE(last, 100ms);
}

TEST(PollPolicy, PausesGetShortAgainWhereNobodyWantsTheCore) {
  Waits waits;
  waits.wait(10us, 20);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(waits.gets_core_back_after(151us));
  waits.pass(1s);
  waits.wait(10us, 1000);
  EXPECT_FALSE(waits.gets_core_back_after(151us));
  EXPECT_GT(waits.policy().begin(waits.now() + 1ms), 0us);
}

// ---- Against the best that one bound for all waits could have done.

/// What polling for up to `bound` in each wait costs, in nanoseconds, as the policy weighs it.
double cost(const std::vector<Duration>& waits, double weight,
            const std::function<Duration(Duration)>& polled) {
  double total = 0;
  for (const Duration wait : waits) {
    const Duration poll = polled(wait);
    total += weight * static_cast<double>(poll.count());
    if (poll < wait) total += static_cast<double>(kWakeUp.count());
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

TEST(PollPolicy, CostsLittleMoreThanTheBestBoundInHindsight) {
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
    Waits with_policy(kMaxPoll,
                      for_others ? PollPolicy::Waits::kForOthers : PollPolicy::Waits::kForItself);
    const double ours = cost(waits, weight, [&](Duration wait) { return with_policy.wait(wait); });
    EXPECT_LT(ours, 1.3 * best + 50 * 30'000) << "seed " << seed;
  }
}

TEST(PollPolicy, CostsLittleMoreThanTheBestBoundInWaitsThatWereRecorded) {
  for (const RecordedWaits& recorded : recorded_waits()) {
    const double weight = recorded.whose == PollPolicy::Waits::kForItself ? 0.125 : 0.5;
    std::vector<Duration> waits;
    for (const std::int32_t wait : recorded.waits) waits.push_back(wait * Duration(100));
    double best = std::numeric_limits<double>::max();
    for (Duration bound : {0us, 3us, 6us, 12us, 25us, 50us, 100us, 200us}) {
      best =
          std::min(best, cost(waits, weight, [&](Duration wait) { return std::min(bound, wait); }));
    }
    Waits with_policy(kMaxPoll, recorded.whose);
    const double ours = cost(waits, weight, [&](Duration wait) { return with_policy.wait(wait); });
    EXPECT_LT(ours, 1.1 * best + 5 * 30'000) << recorded.scene << ": " << ours / best;
    RecordProperty(recorded.scene, std::to_string(ours / best));
  }
}

}  // namespace
}  // namespace sinew::internal
