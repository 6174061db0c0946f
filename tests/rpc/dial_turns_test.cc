#include "sinew/rpc/link/dial_turns.h"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/tests/transport/happening.h"

namespace sinew::internal {
namespace {

using ::testing::ElementsAre;

constexpr Incarnation kSelf{1000};

/// Timers that run when the test says so.
class HandTimers final : public Timers {
 public:
  TimerId run_at(Clock::TimePoint, Task task) override {
    MutexLock lock(mutex_);
    tasks_.emplace(++last_, std::move(task));
    return last_;
  }
  bool cancel(TimerId id) override {
    Task cancelled;
    MutexLock lock(mutex_);
    const auto found = tasks_.find(id);
    if (found == tasks_.end()) return false;
    cancelled = std::move(found->second);
    tasks_.erase(found);
    return true;
  }
  std::size_t size() {
    MutexLock lock(mutex_);
    return tasks_.size();
  }
  void run_all() {
    std::map<TimerId, Task> due;
    {
      MutexLock lock(mutex_);
      due.swap(tasks_);
    }
    for (auto& [id, task] : due) std::move(task)();
  }

 private:
  Mutex mutex_;
  TimerId last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<TimerId, Task> tasks_ ABSL_GUARDED_BY(mutex_);
};

class DialTurnsTest : public ::testing::Test {
 protected:
  DialTurnsTest() : executor_(one_thread()) {}
  ~DialTurnsTest() override {
    turns_->close();
    settle();
    held_.clear();
  }

  void enter(std::uint64_t peer) {
    turns_->enter({peer}, [this, peer](Credit turn) {
      begun_.push_back(peer);
      held_.push_back(std::move(turn));
    });
  }
  /// Those that have a turn, in the order in which it came.
  std::vector<std::uint64_t> begun() {
    settle();
    return std::exchange(begun_, {});
  }
  void end_one() {
    settle();
    // Last: the next turn begins on the other thread.
    const Credit ended = std::move(held_.front());
    held_.erase(held_.begin());
  }
  void fill() {
    for (std::uint64_t i = 0; i < DialTurns::kAtOnce; ++i) enter(1 + i);
    EXPECT_EQ(begun().size(), DialTurns::kAtOnce);
  }

  // What was posted before has run; the one thread does nothing more.
  void settle() {
    Happening reached;
    executor_.post([&reached] { reached.notify(); });
    EXPECT_TRUE(reached.wait());
  }

  HandTimers timers_;

 private:
  static Executor::Options one_thread() {
    Executor::Options options;
    options.num_threads = 1;
    return options;
  }

  Executor executor_;

 protected:
  const std::shared_ptr<DialTurns> turns_ = std::make_shared<DialTurns>(kSelf, executor_, timers_);
  std::vector<Credit> held_;
  std::vector<std::uint64_t> begun_;
};

TEST_F(DialTurnsTest, SoManyBeginAtOnce) {
  for (std::uint64_t i = 0; i < DialTurns::kAtOnce + 3; ++i) enter(2000 + i);
  EXPECT_EQ(begun().size(), DialTurns::kAtOnce);
  end_one();
  EXPECT_EQ(begun().size(), 1u);
  EXPECT_EQ(begun().size(), 0u);
}

TEST_F(DialTurnsTest, ThoseThatFollowInTheRingComeFirst) {
  fill();
  for (const std::uint64_t peer : {999, 5, 1001, 3000}) enter(peer);
  for (int i = 0; i < 4; ++i) end_one();
  EXPECT_THAT(begun(), ElementsAre(1001, 3000, 5, 999));
}

TEST_F(DialTurnsTest, ATurnEndsThoughItsAttemptDoesNot) {
  fill();
  enter(2000);
  EXPECT_THAT(begun(), ElementsAre());
  timers_.run_all();
  EXPECT_THAT(begun(), ElementsAre(2000));
}

TEST_F(DialTurnsTest, ATurnThatHasEndedLeavesNoTimer) {
  enter(2000);
  EXPECT_THAT(begun(), ElementsAre(2000));
  EXPECT_EQ(timers_.size(), 1u);
  end_one();
  EXPECT_EQ(timers_.size(), 0u);
}

TEST_F(DialTurnsTest, ATurnThatIsNotTakenPassesOn) {
  fill();
  turns_->enter({1500}, [this](Credit) { begun_.push_back(1500); });
  enter(2000);
  end_one();
  settle();  // The next one is posted when the first has run.
  EXPECT_THAT(begun(), ElementsAre(1500, 2000));
}

TEST_F(DialTurnsTest, NoneBeginsAfterTheEnd) {
  fill();
  enter(2000);
  turns_->close();
  enter(3000);
  end_one();
  timers_.run_all();
  EXPECT_THAT(begun(), ElementsAre());
}

}  // namespace
}  // namespace sinew::internal
