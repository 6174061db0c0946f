// Who waits for a member of some name, and what is known of it.

#include "sinew/rpc/worker/member_waits.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/worker/member_presence.h"
#include "sinew/tests/support/manual_clock.h"

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

using Kind = MemberEvent::Kind;

class MemberWaitsTest : public ::testing::Test {
 protected:
  void tell(Kind kind, const WorkerInfo& worker, std::string reason = "") {
    waits_->on_event({kind, worker, std::move(reason), {}});
  }
  Future<WorkerInfo> wait(const std::string& name, Incarnation other_than = {},
                          std::chrono::nanoseconds timeout = 30s) {
    return waits_->wait_async(name, other_than, clock_.now() + timeout, nullptr);
  }
  static ErrorInfo error_of(const Future<WorkerInfo>& future) {
    EXPECT_TRUE(future.done());
    return future.error() == nullptr ? ErrorInfo() : describe(future.error());
  }

  const WorkerInfo a_{"a", 1, {10}};
  const WorkerInfo again_{"a", 1, {11}};
  const WorkerInfo b_{"b", 2, {20}};
  testing::ManualClock clock_;
  // Known to be so before the event.
  std::vector<WorkerInfo> lost_;
  const std::shared_ptr<MemberWaits> waits_ =
      std::make_shared<MemberWaits>(clock_, clock_, [this](const WorkerInfo& worker) {
        return std::find(lost_.begin(), lost_.end(), worker) != lost_.end();
      });
};

TEST_F(MemberWaitsTest, WhoIsThereIsThereAtOnce) {
  tell(Kind::kJoined, a_);
  tell(Kind::kSuspected, a_);
  EXPECT_EQ(wait("a").value(), a_);
  EXPECT_EQ(clock_.num_timers(), 0u);
}

TEST_F(MemberWaitsTest, OneThatComesEndsTheWaitsForItAndNoOthers) {
  const auto first = wait("a");
  const auto second = wait("a");
  const auto other = wait("b");
  tell(Kind::kJoined, a_);
  EXPECT_EQ(first.value(), a_);
  EXPECT_EQ(second.value(), a_);
  EXPECT_FALSE(other.done());
  EXPECT_EQ(clock_.num_timers(), 1u);
}

TEST_F(MemberWaitsTest, OneThatComesBackIsAnotherOne) {
  tell(Kind::kJoined, a_);
  const auto next = wait("a", a_.incarnation);
  EXPECT_FALSE(next.done());
  tell(Kind::kLost, a_, "why");
  const auto any = wait("a");
  EXPECT_FALSE(any.done());
  tell(Kind::kJoined, again_);
  EXPECT_EQ(next.value(), again_);
  EXPECT_EQ(any.value(), again_);
}

// A call to it has failed, and the event is on its way.
TEST_F(MemberWaitsTest, WhoIsLostIsNotThereAnyMore) {
  tell(Kind::kJoined, a_);
  lost_.push_back(a_);
  const auto next = wait("a");
  EXPECT_FALSE(next.done());
  tell(Kind::kLost, a_, "why");
  EXPECT_FALSE(next.done());
  tell(Kind::kJoined, again_);
  EXPECT_EQ(next.value(), again_);
}

// News of the one before may come late.
TEST_F(MemberWaitsTest, TheLossOfAPredecessorLeavesTheOneWhoIsThere) {
  tell(Kind::kJoined, a_);
  tell(Kind::kJoined, again_);
  tell(Kind::kLost, a_, "why");
  EXPECT_EQ(wait("a").value(), again_);
}

TEST_F(MemberWaitsTest, AnOverdueWaitSaysWhatIsKnown) {
  tell(Kind::kJoined, b_);
  const auto never = wait("agent");
  clock_.advance(30s);
  EXPECT_EQ(error_of(never).code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(error_of(never).peer, "agent");
  EXPECT_THAT(error_of(never).message,
              HasSubstr("waited 30 s for worker 'agent': no worker 'agent' was ever seen; others "
                        "that are there: 'b'"));

  tell(Kind::kJoined, a_);
  const auto silent = wait("a", a_.incarnation);
  clock_.advance(30s);
  EXPECT_THAT(error_of(silent).message, HasSubstr("does not answer"));

  tell(Kind::kLost, a_, "its process has ended");
  clock_.advance(12s);
  const auto lost = wait("a");
  clock_.advance(30s);
  EXPECT_THAT(error_of(lost).message,
              HasSubstr("worker 'a' was lost 42 s ago, and has not come back (its process has "
                        "ended)"));

  tell(Kind::kJoined, again_);
  tell(Kind::kLeft, again_);
  const auto left = wait("a");
  clock_.advance(30s);
  EXPECT_THAT(error_of(left).message, HasSubstr("worker 'a' left the job 30 s ago"));
}

TEST_F(MemberWaitsTest, OneWithoutALimitHasNoTimer) {
  const auto wait = waits_->wait_async("a", {}, Clock::TimePoint::max(), nullptr);
  EXPECT_EQ(clock_.num_timers(), 0u);
  tell(Kind::kJoined, a_);
  EXPECT_EQ(wait.value(), a_);
}

TEST_F(MemberWaitsTest, AllEndWithTheWorkerAndItsEviction) {
  const auto waiting = wait("a");
  tell(Kind::kEvicted, {"self", 0, {1}}, "was evicted");
  EXPECT_EQ(error_of(waiting).code, ErrorCode::kAborted);
  EXPECT_EQ(error_of(waiting).message, "was evicted");
  EXPECT_EQ(clock_.num_timers(), 0u);
  waits_->end(absl::CancelledError("was shut down"));
  EXPECT_EQ(error_of(wait("a")).code, ErrorCode::kAborted) << "later ones too, and for that reason";
}

TEST_F(MemberWaitsTest, HowThoseWentWhoCameAndWentIsForgottenInTheEnd) {
  MemberPresence presence;
  const auto name_of = [](std::size_t number) { return absl::StrCat("actor", number); };
  for (std::size_t i = 0; i <= MemberPresence::kMostGone; ++i) {
    const WorkerInfo worker{name_of(i), 1, {i + 1}};
    presence.on_event({Kind::kJoined, worker, ""}, {});
    presence.on_event({Kind::kLost, worker, "", {}}, {});
    // One that is lost again and again takes one place.
    presence.on_event({Kind::kLost, {"b", 1, {i + 1}}, "", {}}, {});
  }
  EXPECT_THAT(presence.absence("actor1", {}), HasSubstr("was ever seen"));
  EXPECT_THAT(presence.absence("actor2", {}), HasSubstr("was lost"));
  EXPECT_THAT(presence.absence("b", {}), HasSubstr("was lost"));
  EXPECT_THAT(presence.absence("actor0", {}), Not(HasSubstr("was lost")));
}

}  // namespace
}  // namespace sinew::internal
