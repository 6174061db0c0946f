#include "sinew/rpc/internal/lease.h"

#include <gtest/gtest.h>

#include <map>
#include <queue>
#include <random>
#include <vector>

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

const Lease::TimePoint kStart = Lease::TimePoint(std::chrono::hours(1));

TEST(LeaseTest, BeatsEveryIntervalAndStaysAliveWhenAcknowledged) {
  Lease lease({}, kStart, kStart);
  for (int i = 0; i < 100; ++i) {
    const Lease::TimePoint now = kStart + seconds(i);
    const Lease::Step step = lease.poll(now);
    EXPECT_EQ(step.beat, static_cast<std::uint64_t>(i + 1));
    EXPECT_EQ(step.state, LeaseState::kAlive);
    EXPECT_EQ(lease.poll(now).beat, 0u) << "one beat an interval";
    lease.on_beat(now);
    EXPECT_EQ(lease.on_beat_reply(step.beat, now + milliseconds(1)).wake, now + seconds(1));
    EXPECT_TRUE(lease.may_use(now));
    EXPECT_FALSE(lease.may_drop(now));
  }
}

TEST(LeaseTest, SuspectsAfterAThirdAndLosesAtTheEnd) {
  Lease lease({}, kStart, kStart);
  std::vector<std::pair<seconds, LeaseState>> changes;
  for (Lease::TimePoint now = kStart; now < kStart + seconds(20);) {
    const Lease::Step step = lease.poll(now);
    if (step.changed) {
      changes.emplace_back(std::chrono::duration_cast<seconds>(now - kStart), step.state);
    }
    if (step.wake == Lease::TimePoint::max()) break;
    ASSERT_GT(step.wake, now);
    now = step.wake;
  }
  const std::vector<std::pair<seconds, LeaseState>> expected = {
      {seconds(5), LeaseState::kSuspected}, {seconds(15), LeaseState::kLost}};
  EXPECT_EQ(changes, expected);
}

TEST(LeaseTest, RecoversFromSuspicion) {
  Lease lease({}, kStart, kStart);
  const std::uint64_t beat = lease.poll(kStart + seconds(4)).beat;
  EXPECT_EQ(lease.poll(kStart + seconds(5)).state, LeaseState::kSuspected);
  const Lease::Step step = lease.on_beat_reply(beat, kStart + seconds(6));
  EXPECT_TRUE(step.changed);
  EXPECT_EQ(step.state, LeaseState::kAlive);
  EXPECT_EQ(lease.last_acknowledged(), kStart + seconds(4)) << "counts from when it was sent";
}

TEST(LeaseTest, LateAnswerDoesNotReviveIt) {
  Lease lease({}, kStart, kStart);
  const std::uint64_t beat = lease.poll(kStart + seconds(14)).beat;
  lease.on_beat(kStart + seconds(14));
  EXPECT_FALSE(lease.may_use(kStart + seconds(15))) << "without any poll";
  EXPECT_EQ(lease.on_beat_reply(beat, kStart + seconds(15)).state, LeaseState::kLost);
  EXPECT_FALSE(lease.may_use(kStart + seconds(15)));
}

TEST(LeaseTest, ForgedAndRepeatedAnswersChangeNothing) {
  Lease lease({}, kStart, kStart);
  lease.poll(kStart);
  lease.on_beat_reply(77, kStart + seconds(1));
  EXPECT_EQ(lease.last_acknowledged(), kStart);
  const std::uint64_t first = lease.poll(kStart + seconds(2)).beat;
  const std::uint64_t second = lease.poll(kStart + seconds(3)).beat;
  lease.on_beat_reply(second, kStart + seconds(4));
  lease.on_beat_reply(first, kStart + seconds(5));
  EXPECT_EQ(lease.last_acknowledged(), kStart + seconds(3)) << "an older answer cannot shorten it";
}

TEST(LeaseTest, OwnBeatsLostMeansFencedButNotDropped) {
  // Our beats get lost, the peer's arrive: the peer still trusts its lease, so we must not drop its
  // references.
  Lease lease({}, kStart, kStart);
  for (int i = 0; i < 15; ++i) {
    lease.poll(kStart + seconds(i));
    lease.on_beat(kStart + seconds(i));
  }
  Lease::Step step = lease.poll(kStart + seconds(15));
  EXPECT_EQ(step.state, LeaseState::kLost);
  EXPECT_FALSE(step.drop);
  EXPECT_EQ(step.wake, kStart + seconds(29));
  EXPECT_FALSE(lease.may_use(kStart + seconds(15)));
  // Its further beats are not answered and count for nothing.
  EXPECT_EQ(lease.on_beat(kStart + seconds(20)).state, LeaseState::kLost);
  step = lease.poll(kStart + seconds(29));
  EXPECT_TRUE(step.drop);
  EXPECT_EQ(step.wake, Lease::TimePoint::max());
}

TEST(LeaseTest, GoneForCertainDropsAtOnce) {
  Lease lease({}, kStart, kStart);
  const Lease::Step step = lease.on_gone(kStart + seconds(1));
  EXPECT_EQ(step.state, LeaseState::kLost);
  EXPECT_TRUE(step.changed);
  EXPECT_TRUE(step.drop);
  EXPECT_FALSE(lease.on_gone(kStart + seconds(2)).changed);
}

// Two workers, a network that delays, loses, repeats and reorders as it likes, and polls that come
// late. At no moment may one have dropped what the other still uses.
TEST(LeaseTest, HolderFencesItselfBeforeOwnerDrops) {
  struct Message {
    Lease::TimePoint when;
    int to;
    bool is_reply;
    std::uint64_t sequence;
    bool operator<(const Message& other) const { return when > other.when; }
  };
  int runs_with_loss = 0;
  int runs_alive = 0;
  for (std::uint32_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const int loss_percent = static_cast<int>(random() % 101);
    const nanoseconds longest_delay = milliseconds(1 + random() % 20000);
    const nanoseconds latest_poll = milliseconds(1 + random() % 3000);
    const auto up_to = [&](nanoseconds most) {
      return nanoseconds(std::uniform_int_distribution<std::int64_t>(0, most.count())(random));
    };
    // Worker 0 connects, worker 1 accepts later, worker 0 hears of it later still. Each holds
    // references of the other.
    const Lease::TimePoint accepted = kStart + up_to(seconds(4));
    const Lease::TimePoint up = accepted + up_to(seconds(4));
    Lease opener({}, kStart, up);
    Lease acceptor({}, accepted, accepted);
    Lease* leases[2] = {&opener, &acceptor};
    Lease::TimePoint polls[2] = {up, accepted};
    std::priority_queue<Message> wire;
    const auto send = [&](int from, bool is_reply, std::uint64_t sequence, Lease::TimePoint now) {
      for (int copies = random() % 10 == 0 ? 2 : 1; copies > 0; --copies) {
        if (static_cast<int>(random() % 100) < loss_percent) continue;
        wire.push({now + up_to(longest_delay), 1 - from, is_reply, sequence});
      }
    };
    bool saw_drop = false;
    Lease::TimePoint now = kStart;
    while (now < kStart + seconds(90)) {
      const int next_poll = polls[0] <= polls[1] ? 0 : 1;
      const bool is_poll = wire.empty() || polls[next_poll] <= wire.top().when;
      int who = next_poll;
      Lease::Step step;
      if (is_poll) {
        if (polls[next_poll] == Lease::TimePoint::max()) break;
        now = std::max(now, polls[next_poll]);
        step = leases[who]->poll(now);
      } else {
        const Message message = wire.top();
        wire.pop();
        now = std::max(now, message.when);
        who = message.to;
        if (who == 0 && now < up) continue;
        if (message.is_reply) {
          step = leases[who]->on_beat_reply(message.sequence, now);
        } else {
          step = leases[who]->on_beat(now);
          if (step.state != LeaseState::kLost) send(who, true, message.sequence, now);
        }
      }
      if (step.beat != 0) send(who, false, step.beat, now);
      polls[who] =
          step.wake == Lease::TimePoint::max() ? step.wake : step.wake + up_to(latest_poll);
      saw_drop = saw_drop || acceptor.may_drop(now) || opener.may_drop(now);
      ASSERT_FALSE(acceptor.may_drop(now) && opener.may_use(now)) << (now - kStart).count();
      ASSERT_FALSE(opener.may_drop(now) && acceptor.may_use(now)) << (now - kStart).count();
    }
    saw_drop ? ++runs_with_loss : ++runs_alive;
  }
  // The property would be empty if the network never, or always, killed the lease.
  EXPECT_GT(runs_with_loss, 100);
  EXPECT_GT(runs_alive, 100);
}

}  // namespace
}  // namespace sinew::internal
