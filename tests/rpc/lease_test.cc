#include "sinew/rpc/link/lease.h"

#include <gtest/gtest.h>

#include <algorithm>
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

/// Two workers, a network that delays, loses, repeats and reorders as it likes, and polls that come
/// late.
class LossyPair {
 public:
  explicit LossyPair(std::uint32_t seed)
      : random_(seed),
        loss_percent_(static_cast<int>(random_() % 101)),
        longest_delay_(milliseconds(1 + random_() % 20000)),
        latest_poll_(milliseconds(1 + random_() % 3000)),
        // Worker 0 connects, worker 1 accepts later, worker 0 hears of it later still.
        accepted_(kStart + up_to(seconds(4))),
        up_(accepted_ + up_to(seconds(4))),
        leases_{Lease({}, kStart, up_), Lease({}, accepted_, accepted_)},
        polls_{up_, accepted_} {}

  /// The next poll or message. False when nothing will happen any more.
  bool step() {
    const int next_poll = polls_[0] <= polls_[1] ? 0 : 1;
    if (!wire_.empty() && polls_[next_poll] > wire_.top().when) {
      const Message message = wire_.top();
      wire_.pop();
      now_ = std::max(now_, message.when);
      if (message.to != 0 || now_ >= up_) follow(message.to, receive(message));
      return true;
    }
    if (polls_[next_poll] == Lease::TimePoint::max()) return false;
    now_ = std::max(now_, polls_[next_poll]);
    follow(next_poll, leases_[next_poll].poll(now_));
    return true;
  }

  Lease::TimePoint now() const { return now_; }
  bool may_drop(int who) const { return leases_[who].may_drop(now_); }
  bool may_use(int who) const { return leases_[who].may_use(now_); }

 private:
  struct Message {
    Lease::TimePoint when;
    int to;
    bool is_reply;
    std::uint64_t sequence;
    bool operator<(const Message& other) const { return when > other.when; }
  };

  nanoseconds up_to(nanoseconds most) {
    return nanoseconds(std::uniform_int_distribution<std::int64_t>(0, most.count())(random_));
  }
  void send(int from, bool is_reply, std::uint64_t sequence) {
    for (int copies = random_() % 10 == 0 ? 2 : 1; copies > 0; --copies) {
      if (static_cast<int>(random_() % 100) < loss_percent_) continue;
      wire_.push({now_ + up_to(longest_delay_), 1 - from, is_reply, sequence});
    }
  }
  Lease::Step receive(const Message& message) {
    Lease& lease = leases_[message.to];
    if (message.is_reply) return lease.on_beat_reply(message.sequence, now_);
    const Lease::Step step = lease.on_beat(now_);
    if (step.state != LeaseState::kLost) send(message.to, true, message.sequence);
    return step;
  }
  void follow(int who, const Lease::Step& step) {
    if (step.beat != 0) send(who, false, step.beat);
    polls_[who] =
        step.wake == Lease::TimePoint::max() ? step.wake : step.wake + up_to(latest_poll_);
  }

  std::mt19937 random_;
  const int loss_percent_;
  const nanoseconds longest_delay_;
  const nanoseconds latest_poll_;
  const Lease::TimePoint accepted_;
  const Lease::TimePoint up_;
  Lease leases_[2];
  Lease::TimePoint polls_[2];
  std::priority_queue<Message> wire_;
  Lease::TimePoint now_ = kStart;
};

// Each holds references of the other. At no moment may one have dropped what the other still uses.
TEST(LeaseTest, HolderFencesItselfBeforeOwnerDrops) {
  int runs_with_loss = 0;
  int runs_alive = 0;
  for (std::uint32_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    LossyPair pair(seed);
    bool saw_drop = false;
    while (pair.now() < kStart + seconds(90) && pair.step()) {
      saw_drop = saw_drop || pair.may_drop(0) || pair.may_drop(1);
      ASSERT_FALSE(pair.may_drop(1) && pair.may_use(0)) << (pair.now() - kStart).count();
      ASSERT_FALSE(pair.may_drop(0) && pair.may_use(1)) << (pair.now() - kStart).count();
    }
    saw_drop ? ++runs_with_loss : ++runs_alive;
  }
  // The property would be empty if the network never, or always, killed the lease.
  EXPECT_GT(runs_with_loss, 100);
  EXPECT_GT(runs_alive, 100);
}

}  // namespace
}  // namespace sinew::internal
