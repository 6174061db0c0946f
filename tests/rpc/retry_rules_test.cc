// Which failures of a call are repeated, when, and how often.

#include "sinew/rpc/calls/retry_rules.h"

#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Answered = RetryRules::Answered;
using Failure = RetryRules::Failure;
using Kind = RetryRules::Decision::Kind;
using Safety = RetryRules::Safety;
using TimePoint = RetryRules::TimePoint;

constexpr auto kDidNotRun = Execution::kDidNotRun;
constexpr auto kMayHaveRun = Execution::kMayHaveRun;

Kind decide(const Failure& failure, Safety safety, RetryAt retry_at = RetryAt::kSameWorker) {
  RetryPolicy policy;
  policy.retry_at = retry_at;
  return RetryRules(policy, safety, TimePoint::max()).on_failure(failure, TimePoint(), 0).kind;
}

// The table of docs/retries.md.
TEST(RetryRules, OnlyWhatMayPassByItselfIsRepeated) {
  for (int code = 1; code <= 16; ++code) {
    const auto error = static_cast<ErrorCode>(code);
    const bool may_pass =
        error == ErrorCode::kUnavailable || error == ErrorCode::kResourceExhausted;
    for (const Safety safety : {Safety::kRunsOnce, Safety::kIdempotent}) {
      EXPECT_EQ(decide({error, kDidNotRun}, safety), may_pass ? Kind::kRepeat : Kind::kGiveUp)
          << code;
    }
    EXPECT_EQ(decide({error, kMayHaveRun}, Safety::kIdempotent),
              may_pass ? Kind::kRepeat : Kind::kGiveUp)
        << code;
    EXPECT_EQ(decide({error, kMayHaveRun}, Safety::kRunsOnce), Kind::kGiveUp) << code;
    EXPECT_EQ(decide({error, kMayHaveRun}, Safety::kStartsOnce), Kind::kGiveUp) << code;
  }
}

TEST(RetryRules, WhatMakesAReferenceIsRepeatedWhereItHasNotArrived) {
  const auto full = ErrorCode::kResourceExhausted;
  EXPECT_EQ(decide({full, kDidNotRun, Answered::kByNobody}, Safety::kStartsOnce), Kind::kRepeat);
  EXPECT_EQ(decide({full, kDidNotRun, Answered::kByCallee}, Safety::kStartsOnce), Kind::kGiveUp);
}

TEST(RetryRules, WhoIsLostStaysLost) {
  const auto lost = [](Execution execution) {
    return Failure{ErrorCode::kUnavailable, execution, Answered::kByNobody, /*is_lost=*/true};
  };
  EXPECT_EQ(decide(lost(kDidNotRun), Safety::kIdempotent), Kind::kGiveUp);
  const auto next = [&](Execution execution, Safety safety) {
    return decide(lost(execution), safety, RetryAt::kNextOfItsName);
  };
  EXPECT_EQ(next(kDidNotRun, Safety::kRunsOnce), Kind::kRepeatAtNext);
  EXPECT_EQ(next(kMayHaveRun, Safety::kRunsOnce), Kind::kGiveUp);
  EXPECT_EQ(next(kMayHaveRun, Safety::kIdempotent), Kind::kRepeatAtNext);
  EXPECT_EQ(next(kDidNotRun, Safety::kStartsOnce), Kind::kGiveUp) << "a reference has one owner";
}

const Failure kFull{ErrorCode::kResourceExhausted, kDidNotRun};

std::vector<std::chrono::nanoseconds> pauses(RetryRules rules, double chance) {
  std::vector<std::chrono::nanoseconds> pauses;
  TimePoint now;
  while (true) {
    const auto decision = rules.on_failure(kFull, now, chance);
    if (decision.kind != Kind::kRepeat) return pauses;
    pauses.push_back(decision.when - now);
    now = decision.when;
  }
}

TEST(RetryRules, PausesGrowUpToABoundAndAreCutByChance) {
  RetryPolicy policy;
  policy.max_attempts = 6;
  policy.first_pause = 100ms;
  policy.longest_pause = 1s;
  policy.multiplier = 3;
  const RetryRules rules(policy, Safety::kRunsOnce, TimePoint::max());
  EXPECT_THAT(pauses(rules, 0), ElementsAre(100ms, 300ms, 900ms, 1s, 1s));
  EXPECT_THAT(pauses(rules, 0.5), ElementsAre(75ms, 225ms, 675ms, 750ms, 750ms));
  for (const auto pause : pauses(rules, 0.999)) EXPECT_GE(pause, 50ms);
}

TEST(RetryRules, AttemptsAreCounted) {
  RetryPolicy policy;
  policy.max_attempts = 1;
  EXPECT_THAT(pauses(RetryRules(policy, Safety::kRunsOnce, TimePoint::max()), 0), ElementsAre());
  policy.max_attempts = 3;
  EXPECT_EQ(pauses(RetryRules(policy, Safety::kRunsOnce, TimePoint::max()), 0).size(), 2u);
  // However often its pauses would have doubled.
  policy.max_attempts = std::numeric_limits<int>::max();
  RetryRules endless(policy, Safety::kRunsOnce, TimePoint::max());
  for (int attempt = 0; attempt < 5000; ++attempt) {
    const auto decision = endless.on_failure(kFull, TimePoint(), 0);
    ASSERT_EQ(decision.kind, Kind::kRepeat);
    ASSERT_LE(decision.when, TimePoint() + policy.longest_pause);
    ASSERT_GT(decision.when, TimePoint());
  }
}

TEST(RetryRules, NoAttemptBeginsAfterTheDeadline) {
  const TimePoint begin;
  RetryRules rules(RetryPolicy(), Safety::kRunsOnce, begin + 120ms);
  EXPECT_EQ(rules.on_failure(kFull, begin, 0).when, begin + 50ms);
  // The next one would begin at 150 ms.
  EXPECT_EQ(rules.on_failure(kFull, begin + 50ms, 0).kind, Kind::kGiveUp);
  EXPECT_EQ(RetryRules(RetryPolicy(), Safety::kRunsOnce, begin).on_failure(kFull, begin, 0).kind,
            Kind::kGiveUp);
}

TEST(RetryRules, PoliciesAreChecked) {
  EXPECT_NO_THROW(checked(RetryPolicy()));
  const auto message = [](auto change) -> std::string {
    RetryPolicy policy;
    change(policy);
    try {
      checked(policy);
    } catch (const RpcError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.message();
    }
    return "";
  };
  EXPECT_THAT(message([](RetryPolicy& p) { p.max_attempts = 0; }), HasSubstr("max_attempts"));
  EXPECT_THAT(message([](RetryPolicy& p) { p.first_pause = 0s; }), HasSubstr("first_pause"));
  EXPECT_THAT(message([](RetryPolicy& p) { p.longest_pause = 1ms; }), HasSubstr("longest_pause"));
  EXPECT_THAT(message([](RetryPolicy& p) { p.multiplier = 0.5; }), HasSubstr("multiplier"));
  EXPECT_THAT(
      message([](RetryPolicy& p) { p.multiplier = std::numeric_limits<double>::quiet_NaN(); }),
      HasSubstr("multiplier"));
}

}  // namespace
}  // namespace sinew::internal
