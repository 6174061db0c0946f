#include "sinew/rpc/link/dial_turns.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/tests/support/manual_clock.h"
#include "sinew/tests/transport/happening.h"

namespace sinew::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Incarnation kThisProcess{1000};

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
    for (std::uint64_t i = 1; i <= DialOrder::kAtOnce; ++i) enter(kThisProcess.value + i);
    EXPECT_EQ(begun().size(), DialOrder::kAtOnce);
  }

  // What was posted before has run; the one thread does nothing more.
  void settle() {
    Happening reached;
    executor_.post([&reached] { reached.notify(); });
    EXPECT_TRUE(reached.wait());
  }

 private:
  static Executor::Options one_thread() {
    Executor::Options options;
    options.num_threads = 1;
    return options;
  }

  Executor executor_;

 protected:
  sinew::testing::ManualClock clock_;
  const std::shared_ptr<DialTurns> turns_ =
      std::make_shared<DialTurns>(kThisProcess, executor_, clock_, clock_);
  std::vector<Credit> held_;
  std::vector<std::uint64_t> begun_;
};

TEST_F(DialTurnsTest, WhoGivesUpItsTurnLetsTheNextOneBegin) {
  fill();
  enter(kThisProcess.value + 100);
  EXPECT_THAT(begun(), IsEmpty());
  end_one();
  EXPECT_THAT(begun(), ElementsAre(kThisProcess.value + 100));
}

TEST_F(DialTurnsTest, ATurnThatIsNotTakenPassesOn) {
  fill();
  turns_->enter({1500}, [this](Credit) { begun_.push_back(1500); });
  enter(2000);
  end_one();
  settle();  // The next one is posted when the first has run.
  EXPECT_THAT(begun(), ElementsAre(1500, 2000));
}

TEST_F(DialTurnsTest, WhoIsToDialIsWaitedForByTheTimer) {
  enter(kThisProcess.value - 1);
  EXPECT_THAT(begun(), IsEmpty());
  clock_.advance(DialOrder::kGlance);
  EXPECT_THAT(begun(), ElementsAre(kThisProcess.value - 1));
}

TEST_F(DialTurnsTest, ATurnEndsThoughItsAttemptDoesNot) {
  fill();
  enter(2000);
  clock_.advance(DialOrder::kLongestTurn);
  EXPECT_THAT(begun(), ElementsAre(2000));
}

// The link with it, which may be another one than this, sees that.
TEST_F(DialTurnsTest, WhoHasDialledHereNeedsNoTurn) {
  fill();
  enter(2000);
  turns_->on_accepted({2000});
  EXPECT_THAT(begun(), ElementsAre(2000));
  enter(3000);
  held_.pop_back();
  EXPECT_THAT(begun(), IsEmpty()) << "it had none that it could give up";
}

TEST_F(DialTurnsTest, ConnectionsThatComeInAreWaitedFor) {
  fill();
  enter(kThisProcess.value - 1);
  turns_->on_accepted({kThisProcess.value - 2});
  for (int i = 0; i < 4; ++i) end_one();
  clock_.advance(DialOrder::kQuiet - std::chrono::milliseconds(1));
  turns_->on_accepted({kThisProcess.value - 3});
  clock_.advance(std::chrono::milliseconds(1));
  EXPECT_THAT(begun(), IsEmpty());
  clock_.advance(DialOrder::kQuiet);
  EXPECT_THAT(begun(), ElementsAre(kThisProcess.value - 1));
}

// The link before it, with the same worker, has ended; or it has not, and somebody lies.
TEST_F(DialTurnsTest, WhoEntersAgainTakesThePlace) {
  fill();
  enter(2000);
  turns_->enter({2000}, [this](Credit) { begun_.push_back(1); });
  EXPECT_THAT(begun(), ElementsAre(2000)) << "nobody is forgotten";
  end_one();
  EXPECT_THAT(begun(), ElementsAre(1));
}

TEST_F(DialTurnsTest, NoneBeginsAfterTheEnd) {
  fill();
  enter(2000);
  turns_->close();
  enter(3000);
  end_one();
  EXPECT_THAT(begun(), IsEmpty());
}

}  // namespace
}  // namespace sinew::internal
