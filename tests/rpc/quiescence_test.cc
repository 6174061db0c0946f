#include "sinew/rpc/membership/quiescence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "sinew/tests/rpc/meeting_world.h"
#include "sinew/tests/support/repetitions.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::repetitions;

const std::vector<std::string> kAll = {"a", "b", "c"};

struct Ended {
  std::vector<Future<void>> done;
  bool all() const {
    return std::all_of(done.begin(), done.end(), [](const auto& each) { return each.done(); });
  }
};

TEST(QuiescenceTest, QuietWorkersNeedTwoRounds) {
  MeetingWorld world(kAll);
  int counted = 0;
  Ended ended;
  for (int i = 0; i < 3; ++i) {
    ended.done.push_back(wait_for_quiescence_async(
        world.gather_of(i), kAll,
        [&counted] {
          ++counted;
          return CallCounts{0, 7};
        },
        seconds(5), world.scheduler));
  }
  world.run();
  for (const auto& each : ended.done) EXPECT_EQ(error_of(each), "ok");
  EXPECT_EQ(counted, 6);
}

TEST(QuiescenceTest, WaitsForActiveCallsAndForLateComers) {
  MeetingWorld world(kAll);
  std::vector<CallCounts> counts = {{0, 0}, {2, 2}, {0, 0}};
  Ended ended;
  const auto begin = [&](int i) {
    ended.done.push_back(wait_for_quiescence_async(
        world.gather_of(i), kAll, [&counts, i] { return counts[static_cast<std::size_t>(i)]; },
        seconds(60), world.scheduler));
  };
  begin(0);
  begin(1);
  world.advance(seconds(1));
  begin(2);
  world.advance(seconds(1));
  EXPECT_FALSE(ended.all());
  counts[1].active = 0;
  world.advance(seconds(1));
  for (const auto& each : ended.done) EXPECT_EQ(error_of(each), "ok");
}

TEST(QuiescenceTest, DeadlineNamesWhoIsBusy) {
  MeetingWorld world(kAll);
  Ended ended;
  for (int i = 0; i < 3; ++i) {
    ended.done.push_back(wait_for_quiescence_async(
        world.gather_of(i), kAll,
        [i] {
          return CallCounts{i == 1 ? 3u : 0u, 3};
        },
        seconds(2), world.scheduler));
  }
  world.advance(seconds(3));
  for (const auto& each : ended.done) {
    EXPECT_EQ(error_of(each), "calls are still active after 2s: 'b' has 3");
  }
}

TEST(QuiescenceTest, LostWorkersDropOut) {
  MeetingWorld world(kAll);
  Ended ended;
  for (int i = 0; i < 2; ++i) {
    ended.done.push_back(wait_for_quiescence_async(
        world.gather_of(i), kAll,
        [] {
          return CallCounts{0, 1};
        },
        seconds(60), world.scheduler));
  }
  world.advance(seconds(1));
  EXPECT_FALSE(ended.all());
  world.lose(2);
  world.advance(seconds(1));
  for (const auto& each : ended.done) EXPECT_EQ(error_of(each), "ok");
}

/// A chain of calls that wanders over the workers: each call's handler, or what follows it at the
/// caller, starts the next one.
class CallChain {
 public:
  CallChain(MeetingWorld& world, std::mt19937& random, std::size_t workers)
      : world_(world), random_(random), counts_(workers), left_(static_cast<int>(random() % 60)) {
    if (left_ > 0) call(random_() % workers);
  }

  CallCounts counts(std::size_t worker) const { return counts_[worker]; }
  std::uint64_t active() const {
    std::uint64_t sum = 0;
    for (const CallCounts& each : counts_) sum += each.active;
    return sum;
  }
  bool ended() const { return left_ <= 0; }

 private:
  // Active at the caller from its start until its continuation has run, at the callee while served.
  void call(std::size_t from) {
    const std::size_t to = random_() % counts_.size();
    ++counts_[from].active;
    ++counts_[from].started;
    world_.runner->post([this, from, to] {
      ++counts_[to].active;
      ++counts_[to].started;
      // The handler follows up before it ends, or the caller's continuation does.
      const bool in_handler = random_() % 2 == 0;
      if (in_handler && --left_ > 0) call(to);
      world_.runner->post([this, from, to, in_handler] {
        --counts_[to].active;
        world_.runner->post([this, from, in_handler] {
          if (!in_handler && --left_ > 0) call(from);
          --counts_[from].active;
        });
      });
    });
  }

  MeetingWorld& world_;
  std::mt19937& random_;
  std::vector<CallCounts> counts_;
  int left_;
};

// The workers count while the chain lives, in every order of events that the seeds give. A chain
// hides from one round of counts by moving from a worker that has not been asked to one that has.
// It must have ended when the first worker is done, or be seen.
TEST(QuiescenceTest, AChainOfFollowUpCallsCannotSlipThrough) {
  const std::vector<std::string> all = {"a", "b", "c", "d"};
  std::uint32_t hidden_rounds = 0;
  const auto seeds = static_cast<std::uint32_t>(repetitions(3000));
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    MeetingWorld world(all, seed);
    CallChain chain(world, random, all.size());
    std::vector<Future<void>> done(all.size());
    const auto begin = [&](std::size_t i) {
      done[i] = wait_for_quiescence_async(
          world.gather_of(i), all,
          [&, i] {
            if (chain.counts(i).active == 0 && chain.active() > 0) ++hidden_rounds;
            return chain.counts(i);
          },
          seconds(60), world.scheduler);
      done[i].on_done([&] { EXPECT_EQ(chain.active(), 0u) << "a worker left while it lived"; });
    };
    // The workers begin at different moments of the chain, so the first round counts at different
    // moments.
    std::function<void(std::size_t, int)> begin_after = [&](std::size_t i, int steps) {
      if (steps == 0) return begin(i);
      world.runner->post([&, i, steps] { begin_after(i, steps - 1); });
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
      begin_after(i, static_cast<int>(random() % 40));
    }
    world.advance(seconds(2));
    for (const auto& each : done) EXPECT_EQ(error_of(each), "ok");
    EXPECT_TRUE(chain.ended());
  }
  EXPECT_GT(hidden_rounds, seeds / 3) << "the chains never hid, so nothing was tested";
}

}  // namespace
}  // namespace sinew::internal
