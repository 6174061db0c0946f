#include "sinew/rpc/worker/member_events.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/threads/executor.h"

namespace sinew::internal {
namespace {

using ::testing::ElementsAre;
using namespace std::chrono_literals;

class MemberEventsTest : public ::testing::Test {
 protected:
  using Seen = std::vector<std::string>;

  static std::string text_of(const MemberEvent& event) {
    std::ostringstream text;
    text << event.kind << " " << event.worker.name << " " << event.worker.incarnation.value;
    if (event.why == Gone::kSilent) text << " silent";
    return text.str();
  }
  std::shared_ptr<MemberSubscription> subscribe(OnMember on_member) {
    auto subscription =
        std::make_shared<MemberSubscription>("self", executor_.runner(), std::move(on_member));
    EXPECT_TRUE(events_.add(subscription));
    return subscription;
  }
  std::shared_ptr<MemberSubscription> collect(Seen& seen) {
    return subscribe([&seen](const MemberEvent& event) { seen.push_back(text_of(event)); });
  }
  /// Runs all that was posted, as a worker does at its end.
  void finish() { executor_.shutdown(); }

  const WorkerInfo a_{"a", 1, {10}};
  const WorkerInfo again_{"a", 1, {11}};
  const WorkerInfo b_{"b", 2, {20}};
  std::vector<WorkerInfo> lost_;
  MemberEvents events_{[this](const WorkerInfo& worker) {
    return std::find(lost_.begin(), lost_.end(), worker) != lost_.end();
  }};
  Executor executor_{Executor::Options()};
};

TEST_F(MemberEventsTest, ComeInTheirOrder) {
  Seen seen;
  events_.joined(b_);
  const auto watch = collect(seen);
  events_.joined(a_);
  events_.suspected(a_);
  events_.trusted(a_);
  events_.suspected(a_);
  events_.gone(a_, Gone::kSilent, "why");
  events_.joined(again_);
  events_.gone(b_, Gone::kLeft, "");
  events_.evicted({"self", 0, {1}}, "why");
  finish();
  EXPECT_THAT(seen, ElementsAre("joined a 10", "suspected a 10", "trusted a 10", "suspected a 10",
                                "lost a 10 silent", "joined a 11", "left b 20", "evicted self 1"));
}

// Several threads find out what becomes of one worker.
TEST_F(MemberEventsTest, TellNothingTwiceAndNothingOfStrangers) {
  Seen seen;
  const auto watch = collect(seen);
  events_.suspected(a_);
  events_.trusted(a_);
  events_.gone(a_, Gone::kUnknown, "");
  lost_.push_back(a_);
  events_.joined(a_);
  events_.joined(b_);
  events_.joined(b_);
  events_.trusted(b_);
  events_.suspected(b_);
  events_.suspected(b_);
  events_.gone(b_, Gone::kLeft, "");
  events_.gone(b_, Gone::kUnknown, "");
  events_.suspected(b_);
  finish();
  EXPECT_THAT(seen, ElementsAre("joined b 20", "suspected b 20", "left b 20"));
}

TEST_F(MemberEventsTest, EndWithTheEviction) {
  Seen seen;
  const auto watch = collect(seen);
  events_.joined(a_);
  events_.evicted({"self", 0, {1}}, "");
  events_.gone(a_, Gone::kUnknown, "");
  events_.evicted({"self", 0, {1}}, "");
  EXPECT_FALSE(events_.add(
      std::make_shared<MemberSubscription>("self", executor_.runner(), [](const MemberEvent&) {})));
  finish();
  EXPECT_THAT(seen, ElementsAre("joined a 10", "evicted self 1"));
}

TEST_F(MemberEventsTest, OneThatThrowsIsToldTheNext) {
  Seen seen;
  const auto watch = subscribe([&seen](const MemberEvent& event) {
    seen.push_back(text_of(event));
    throw std::runtime_error("as the test wants");
  });
  events_.joined(a_);
  events_.joined(b_);
  finish();
  EXPECT_THAT(seen, ElementsAre("joined a 10", "joined b 20"));
}

TEST_F(MemberEventsTest, OneThatWaitsHoldsUpNobodyElse) {
  const Promise<void> gate(nullptr);
  std::atomic<int> at_once{0};
  Seen slow;
  const auto waits = subscribe([&](const MemberEvent& event) {
    EXPECT_EQ(++at_once, 1);
    gate.future().wait_for(60s);
    slow.push_back(text_of(event));
    --at_once;
  });
  const Promise<void> told(nullptr);
  const auto other = subscribe([&](const MemberEvent& event) {
    if (event.worker == b_) told.set_value();
  });
  events_.joined(a_);
  events_.joined(b_);
  EXPECT_NO_THROW(told.future().wait_for(60s));
  gate.set_value();
  finish();
  EXPECT_THAT(slow, ElementsAre("joined a 10", "joined b 20"));
}

TEST_F(MemberEventsTest, AnEndWaitsForTheFunctionAndDestroysIt) {
  const Promise<void> begun(nullptr);
  const Promise<void> gate(nullptr);
  std::atomic<bool> is_over{false};
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = token;
  const auto watch = subscribe([&, token](const MemberEvent&) {
    begun.set_value();
    gate.future().wait_for(60s);
    is_over = true;
  });
  token.reset();
  events_.joined(a_);
  begun.future().wait_for(60s);
  std::thread opens([&] { gate.set_value(); });
  watch->end();
  EXPECT_TRUE(is_over);
  EXPECT_TRUE(watched.expired());
  opens.join();
  watch->end();
  finish();
}

TEST_F(MemberEventsTest, OneMayEndItselfWithinIt) {
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = token;
  std::shared_ptr<MemberSubscription> watch;
  std::atomic<int> calls{0};
  watch = subscribe([&, token](const MemberEvent&) {
    ++calls;
    watch->end();
    EXPECT_FALSE(watched.expired()) << "it still runs";
  });
  token.reset();
  events_.joined(a_);
  events_.joined(b_);
  finish();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(watched.expired());
}

TEST_F(MemberEventsTest, OneThatIsGoneIsToldNothing) {
  Seen seen;
  collect(seen)->end();
  collect(seen).reset();
  events_.joined(a_);
  finish();
  EXPECT_TRUE(seen.empty());
}

}  // namespace
}  // namespace sinew::internal
