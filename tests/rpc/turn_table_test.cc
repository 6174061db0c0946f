#include "sinew/rpc/calls/turn_table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/rpc/calls/arrival_order.h"

namespace sinew::internal {
namespace {

/// What calls of two objects may do, in any order: take a place, wait, and end at their turn or
/// before. Held against a plain list.
class TurnWorld {
 public:
  /// The steps that can be taken: a call's next one, 0, or its early end, 1.
  std::vector<std::pair<std::size_t, int>> steps() const {
    std::vector<std::pair<std::size_t, int>> next;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const State state = calls_[i].state;
      if (state == State::kNew || state == State::kPlaced || state == State::kRuns) {
        next.emplace_back(i, 0);
      }
      if (state == State::kPlaced || state == State::kWaits) next.emplace_back(i, 1);
    }
    return next;
  }

  void take(std::size_t which, int kind) {
    Call& call = calls_[which];
    const TurnTable::Key key{which % 2, 7};
    if (kind == 1 || call.state == State::kRuns) {
      const std::optional<TurnTable::Place> next = table_.leave(call.place);
      std::vector<std::size_t>& line = lines_[key.first];
      const bool was_first = line.front() == which;
      line.erase(std::find(line.begin(), line.end(), which));
      call.state = State::kEnded;
      const bool wakes = was_first && !line.empty() && calls_[line.front()].state == State::kWaits;
      ASSERT_EQ(next.has_value(), wakes);
      if (!wakes) return;
      ASSERT_EQ(*next, calls_[line.front()].place);
      calls_[line.front()].state = State::kRuns;
    } else if (call.state == State::kNew) {
      call.place = table_.take(key);
      call.state = State::kPlaced;
      lines_[key.first].push_back(which);
    } else {
      const bool is_first = lines_[key.first].front() == which;
      ASSERT_EQ(table_.wait(call.place), is_first);
      call.state = is_first ? State::kRuns : State::kWaits;
    }
    for (const auto& [object, line] : lines_) check(object, line);
  }

  /// What decides what may follow.
  std::string digest() const {
    std::string digest;
    for (const Call& call : calls_) digest += static_cast<char>('0' + static_cast<int>(call.state));
    for (const auto& [object, line] : lines_) {
      digest += '/';
      for (const std::size_t which : line) digest += static_cast<char>('0' + which);
    }
    return digest;
  }

  bool is_over() const {
    for (const Call& call : calls_) {
      if (call.state != State::kEnded) return false;
    }
    return table_.empty();
  }

 private:
  enum class State { kNew, kPlaced, kWaits, kRuns, kEnded };
  struct Call {
    State state = State::kNew;
    TurnTable::Place place = 0;
  };

  void check(std::uint64_t object, const std::vector<std::size_t>& line) const {
    const std::optional<TurnTable::Place> first = table_.first({object, 7});
    ASSERT_EQ(first.has_value(), !line.empty());
    for (std::size_t i = 0; i < line.size(); ++i) {
      const Call& call = calls_[line[i]];
      ASSERT_EQ(table_.ahead_of(call.place), i);
      ASSERT_EQ(*first == call.place, i == 0);
      // One at a time; and nobody whose turn it is waits for ever.
      ASSERT_EQ(call.state == State::kRuns, i == 0 && call.state != State::kPlaced);
    }
  }

  std::vector<Call> calls_ = std::vector<Call>(6);
  TurnTable table_;
  std::map<std::uint64_t, std::vector<std::size_t>> lines_;
};

/// From each state once.
void explore(const TurnWorld& world, std::set<std::string>& seen) {
  if (!seen.insert(world.digest()).second) return;
  const auto steps = world.steps();
  EXPECT_TRUE(!steps.empty() || world.is_over());
  for (const auto& [which, kind] : steps) {
    TurnWorld next = world;
    next.take(which, kind);
    if (::testing::Test::HasFatalFailure()) return;
    explore(next, seen);
  }
}

TEST(TurnTable, EachStateOfSixCallsOfTwoObjects) {
  std::set<std::string> seen;
  explore(TurnWorld(), seen);
  EXPECT_GT(seen.size(), 10'000U);
}

/// Every order in which five frames of one caller may come, and be read: those of `calls` want
/// their order, one of them is passed over, the others are no calls.
TEST(ArrivalOrder, CallsGoOnInTheOrderInWhichTheyWereMade) {
  const std::set<std::uint64_t> calls = {1, 3, 4, 5};
  constexpr std::uint64_t kPassed = 3;
  std::vector<std::uint64_t> come = {1, 2, 3, 4, 5};
  int tried = 0;
  do {
    std::vector<std::uint64_t> read(calls.begin(), calls.end());
    do {
      ArrivalOrder order;
      std::vector<std::uint64_t> gone_on;
      const auto note = [&](const ArrivalOrder::Numbers& numbers) {
        gone_on.insert(gone_on.end(), numbers.begin(), numbers.end());
      };
      std::set<std::uint64_t> there;
      std::size_t next_read = 0;
      for (const std::uint64_t frame : come) {
        if (calls.count(frame) == 0) {
          note(order.on_frame(frame));
        } else {
          order.on_call(frame);
        }
        there.insert(frame);
        for (; next_read < read.size() && there.count(read[next_read]) > 0; ++next_read) {
          const std::uint64_t call = read[next_read];
          note(call == kPassed ? order.pass(call) : order.ready(call));
        }
        // Whoever has gone on had all before it there.
        for (const std::uint64_t number : gone_on) {
          for (std::uint64_t before = 1; before < number; ++before) {
            ASSERT_EQ(there.count(before), 1U);
          }
        }
      }
      ASSERT_EQ(gone_on, (std::vector<std::uint64_t>{1, 4, 5}));
      ++tried;
    } while (std::next_permutation(read.begin(), read.end()));
  } while (std::next_permutation(come.begin(), come.end()));
  EXPECT_EQ(tried, 120 * 24);
}

TEST(ArrivalOrder, AFrameTwiceIsOne) {
  ArrivalOrder order;
  order.on_call(2);
  EXPECT_TRUE(order.ready(2).empty());
  EXPECT_EQ(order.on_frame(1), ArrivalOrder::Numbers{2});
  EXPECT_TRUE(order.on_frame(1).empty());
}

}  // namespace
}  // namespace sinew::internal
