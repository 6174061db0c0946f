#include "sinew/rpc/link/dial_order.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kSelf = 1000;
constexpr auto kAtOnce = DialOrder::kAtOnce;

class DialOrderTest : public ::testing::Test {
 protected:
  void enter(std::uint64_t peer) { order.enter({peer}, now); }
  /// Those that follow, from there on.
  void enter_many(std::uint64_t first, std::uint64_t count = kAtOnce + 1) {
    for (std::uint64_t i = 0; i < count; ++i) enter(first + i);
  }
  std::vector<std::uint64_t> begin() {
    std::vector<std::uint64_t> peers;
    for (const DialOrder::Begun& begun : order.begin(now)) {
      peers.push_back(begun.peer.value);
      turns.push_back(begun.turn);
    }
    return peers;
  }
  void end_one() {
    order.end(turns.front());
    turns.erase(turns.begin());
  }
  void end_all() {
    while (!turns.empty()) end_one();
  }

  DialOrder order{{kSelf}};
  DialOrder::TimePoint now{std::chrono::hours(1)};
  std::vector<DialOrder::Turn> turns;
};

TEST_F(DialOrderTest, SoManyBeginAtOnce) {
  enter_many(kSelf + 1, kAtOnce + 3);
  EXPECT_THAT(begin(), SizeIs(kAtOnce));
  end_one();
  EXPECT_THAT(begin(), ElementsAre(kSelf + 1 + kAtOnce));
  EXPECT_THAT(begin(), IsEmpty());
}

TEST_F(DialOrderTest, ThoseThatFollowInTheRingComeFirst) {
  enter_many(kSelf + 1, kAtOnce);
  begin();
  for (const std::uint64_t peer : {3000, 1100, 1200}) enter(peer);
  end_all();
  EXPECT_THAT(begin(), ElementsAre(1100, 1200, 3000));
}

TEST_F(DialOrderTest, TheRingIsClosed) {
  DialOrder last({~std::uint64_t{0}});
  last.enter({5}, now);
  EXPECT_THAT(last.begin(now), SizeIs(1));
  DialOrder first({5});
  first.enter({~std::uint64_t{0}}, now);
  EXPECT_THAT(first.begin(now), IsEmpty()) << "that one is to dial";
}

TEST_F(DialOrderTest, ATurnEndsByItself) {
  enter_many(kSelf + 1);
  begin();
  EXPECT_EQ(order.wake(), now + DialOrder::kLongestTurn);
  now += DialOrder::kLongestTurn;
  EXPECT_THAT(begin(), SizeIs(1));
  end_all();  // Those that are over.
  EXPECT_EQ(order.wake(), DialOrder::TimePoint::max());
}

TEST_F(DialOrderTest, WhereFewAreWantedAllAreDialled) {
  enter_many(kSelf - kAtOnce, kAtOnce);
  EXPECT_THAT(begin(), IsEmpty()) << "there may be more to come";
  EXPECT_EQ(order.wake(), now + DialOrder::kGlance);
  now = order.wake();
  EXPECT_THAT(begin(), SizeIs(kAtOnce));
}

TEST_F(DialOrderTest, OfManyThoseThatAreToDialAreWaitedFor) {
  enter_many(kSelf - 500);
  enter(kSelf + 1);
  EXPECT_THAT(begin(), ElementsAre(kSelf + 1));
  end_all();
  now += DialOrder::kQuiet - milliseconds(1);
  EXPECT_THAT(begin(), IsEmpty());
  now += milliseconds(1);
  EXPECT_THAT(begin(), SizeIs(kAtOnce));
}

TEST_F(DialOrderTest, AsLongAsSomeOfThemDial) {
  enter_many(kSelf - 500);
  now += DialOrder::kQuiet - milliseconds(1);
  order.on_accepted({kSelf - 500}, now);
  EXPECT_EQ(order.wake(), now + DialOrder::kQuiet);
  // Whoever that is.
  now += DialOrder::kQuiet - milliseconds(1);
  order.on_accepted({kSelf + 500}, now);
  EXPECT_THAT(begin(), IsEmpty());
  now = order.wake();
  EXPECT_THAT(begin(), SizeIs(kAtOnce)) << "all but the one that has dialled";
}

TEST_F(DialOrderTest, ButNotForEver) {
  enter_many(kSelf - 500);
  const auto entered = now;
  while (begin().empty()) {
    ASSERT_LT(now, entered + DialOrder::kLongestWait);
    now += milliseconds(100);
    order.on_accepted({kSelf + 500}, now);
  }
  EXPECT_GE(now, entered + DialOrder::kLongestWait);
}

// Each is looked at as it enters, so those that are dialled here do not wait any more.
TEST_F(DialOrderTest, ThoseUnderWayCountAmongTheMany) {
  for (std::uint64_t i = 1; i <= kAtOnce; ++i) {
    enter(kSelf + i);
    EXPECT_THAT(begin(), SizeIs(1));
  }
  enter(kSelf - 1);
  end_all();
  now += DialOrder::kGlance;
  EXPECT_THAT(begin(), IsEmpty());
}

TEST_F(DialOrderTest, ThoseThatHangDoNotCount) {
  enter_many(kSelf + 1, kAtOnce);
  begin();
  now += DialOrder::kLongestTurn;
  enter(kSelf - 1);
  now += DialOrder::kGlance;
  EXPECT_THAT(begin(), ElementsAre(kSelf - 1));
}

TEST_F(DialOrderTest, ManyAreManyUntilNoneWaits) {
  enter_many(kSelf + 1);
  begin();
  enter(kSelf - 1);
  EXPECT_THAT(begin(), IsEmpty());
  now += DialOrder::kGlance;
  EXPECT_THAT(begin(), IsEmpty());
  order.on_accepted({kSelf - 1}, now);
  end_all();
  begin();
  end_all();
  enter(kSelf - 1);
  now += DialOrder::kGlance;
  EXPECT_THAT(begin(), ElementsAre(kSelf - 1));
}

TEST_F(DialOrderTest, WhoEntersTwiceHasOneTurn) {
  enter(kSelf + 1);
  enter(kSelf + 1);
  EXPECT_THAT(begin(), ElementsAre(kSelf + 1));
  EXPECT_THAT(begin(), IsEmpty());
}

// All want all, and dialling takes each of them another time: each two make one connection.
TEST_F(DialOrderTest, AllThatWantAllMakeOneConnectionEach) {
  std::mt19937_64 random(1);
  constexpr int kWorkers = 32;
  std::vector<std::uint64_t> incarnations;
  for (int i = 0; i < kWorkers; ++i) incarnations.push_back(random());
  std::vector<DialOrder> orders;
  for (const std::uint64_t self : incarnations) orders.emplace_back(Incarnation{self});
  struct Dial {
    int from;
    int to;
    DialOrder::Turn turn;
    DialOrder::TimePoint ends;
  };
  std::vector<Dial> dials;
  std::set<std::pair<int, int>> up;
  int connections = 0;
  const auto begin = [&](int from) {
    for (const DialOrder::Begun& each : orders[from].begin(now)) {
      const auto found = std::find(incarnations.begin(), incarnations.end(), each.peer.value);
      const int to = static_cast<int>(found - incarnations.begin());
      dials.push_back({from, to, each.turn, now + milliseconds(1 + random() % 200)});
      ++connections;
    }
  };
  for (int i = 0; i < kWorkers; ++i) {
    for (int j = 0; j < kWorkers; ++j) {
      if (i == j) continue;
      orders[i].enter({incarnations[j]}, now);
      begin(i);
    }
  }
  const auto begun = now;
  for (; up.size() < kWorkers * (kWorkers - 1) / 2; now += milliseconds(1)) {
    ASSERT_LT(now, begun + DialOrder::kLongestWait);
    for (int i = 0; i < kWorkers; ++i) begin(i);
    for (auto dial = dials.begin(); dial != dials.end();) {
      if (dial->ends > now) {
        ++dial;
        continue;
      }
      orders[dial->from].end(dial->turn);
      orders[dial->to].on_accepted({incarnations[dial->from]}, now);
      up.insert(std::minmax(dial->from, dial->to));
      dial = dials.erase(dial);
    }
  }
  EXPECT_EQ(connections, kWorkers * (kWorkers - 1) / 2);
}

}  // namespace
}  // namespace sinew::internal
