#include "sinew/rpc/link/process_watch.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using TimePoint = ProcessWatch::TimePoint;

constexpr TimePoint kStart{seconds(1000)};

struct Process final : ProcessHold {
  bool has_ended() const override {
    ++looks;
    return ended;
  }
  bool ended = false;
  mutable int looks = 0;
};

class ProcessWatchTest : public ::testing::Test {
 protected:
  ProcessWatchTest() {
    watch_.set_up(true, kStart);
    watch_.hold(process_);
  }
  /// Looks whenever it is time to, until then.
  bool ends_within(std::chrono::nanoseconds time) {
    for (const TimePoint end = now_ + time; watch_.wake() <= end;) {
      now_ = std::max(now_, watch_.wake());
      if (watch_.has_ended(now_)) return true;
    }
    return false;
  }

  const std::shared_ptr<Process> process_ = std::make_shared<Process>();
  ProcessWatch watch_;
  TimePoint now_ = kStart;
};

TEST_F(ProcessWatchTest, a_process_that_ends_shortly_after_its_sockets_is_noticed_soon) {
  watch_.set_up(false, now_);
  EXPECT_FALSE(ends_within(milliseconds(20)));
  process_->ended = true;
  EXPECT_TRUE(ends_within(milliseconds(100)));
}

TEST_F(ProcessWatchTest, one_that_lives_is_looked_at_seldom_for_as_long_as_the_link_lives) {
  watch_.set_up(false, now_);
  EXPECT_FALSE(ends_within(seconds(100)));
  EXPECT_LT(process_->looks, 120);
  process_->ended = true;
  EXPECT_TRUE(ends_within(ProcessWatch::kLongestPause));
}

TEST_F(ProcessWatchTest, what_it_sent_last_is_heard_first) {
  process_->ended = true;
  EXPECT_FALSE(watch_.has_ended(now_));
  EXPECT_FALSE(watch_.has_ended(now_ + milliseconds(999)));
  EXPECT_TRUE(watch_.has_ended(now_ + seconds(1)));
}

TEST_F(ProcessWatchTest, with_a_connection_it_has_no_timer_of_its_own) {
  EXPECT_EQ(watch_.wake(), TimePoint::max());
  watch_.set_up(false, now_);
  EXPECT_EQ(watch_.wake(), now_);
}

TEST_F(ProcessWatchTest, a_connection_that_does_not_know_changes_nothing) {
  watch_.set_up(false, now_);
  watch_.hold(nullptr);
  process_->ended = true;
  EXPECT_TRUE(watch_.has_ended(now_));
}

TEST(ProcessWatch, without_a_process_nothing_is_proved) {
  ProcessWatch watch;
  watch.set_up(true, kStart);
  watch.set_up(false, kStart);
  EXPECT_EQ(watch.wake(), TimePoint::max());
  EXPECT_FALSE(watch.has_ended(kStart + seconds(1000)));
}

}  // namespace
}  // namespace sinew::internal
