// Who may call a method, and how much of it at once: the rules, and the counting.

#include "sinew/rpc/method_rules.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/method_load.h"

namespace sinew {
namespace {

using internal::MethodLoad;
using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& make) {
  try {
    make();
  } catch (const RpcError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.message();
  }
  return "nothing was thrown";
}

TEST(MethodRulesTest, NobodyIsTurnedAwayWithoutPatterns) {
  const MethodRules rules;
  EXPECT_TRUE(rules.allows_everyone());
  EXPECT_FALSE(rules.has_limits());
  EXPECT_TRUE(rules.allows("trainer", {}));
  EXPECT_TRUE(rules.allows("", {}));
  EXPECT_TRUE(rules.limit_calls(1).allows("", {}));
}

TEST(MethodRulesTest, PatternsOfNames) {
  struct Case {
    const char* pattern;
    const char* name;
    bool matches;
  };
  const std::string long_name(128, 'a');
  for (const Case& each : std::vector<Case>{
           {"trainer", "trainer", true},
           {"trainer", "trainer0", false},
           {"trainer", "atrainer", false},
           {"trainer", "Trainer", false},
           {"trainer.*", "trainer.0", true},
           {"trainer.*", "trainer.", true},
           {"trainer.*", "trainer", false},
           {"*", "anybody", true},
           {"**", "anybody", true},
           {"?", "a", true},
           {"?", "ab", false},
           {"a?c", "abc", true},
           {"a?c", "ac", false},
           {"*r", "trainer", true},
           {"*r", "trainer0", false},
           {"t*r", "tr", true},
           {"t*r*r", "tr", false},
           {"*in*er*", "trainer", true},
           {"*ab*abc", "abababc", true},
           {"*ab*abc", "abababcd", false},
           {"tr*?", "tr", false},
           {"tr*?", "tra", true},
           {"a.b", "axb", false},
           {"a*a*a*a*a*a*a*b", long_name.c_str(), false},
       }) {
    EXPECT_EQ(allow(each.pattern).allows(each.name, {}), each.matches)
        << each.pattern << " and " << each.name;
  }
}

TEST(MethodRulesTest, AnyPatternSuffices) {
  const MethodRules rules = allow("trainer.*", std::string("learner")).allow("eval");
  EXPECT_TRUE(rules.allows("trainer.3", {}));
  EXPECT_TRUE(rules.allows("learner", {}));
  EXPECT_TRUE(rules.allows("eval", {}));
  EXPECT_FALSE(rules.allows("observer", {}));
}

// A client's certificate may well have a name that a worker could have.
TEST(MethodRulesTest, NamesAreForWorkersAndIdentitiesForCertificates) {
  const MethodRules workers = allow("*");
  EXPECT_TRUE(workers.allows("anybody", {}));
  EXPECT_FALSE(workers.allows("", {}));
  EXPECT_FALSE(workers.allows("", {"anybody"}));

  const MethodRules certificates = allow_identity("spiffe://example.org/clients/*", "dashboard");
  EXPECT_TRUE(certificates.allows("", {"127.0.0.1", "spiffe://example.org/clients/7"}));
  EXPECT_TRUE(certificates.allows("worker", {"dashboard"}));
  EXPECT_FALSE(certificates.allows("dashboard", {}));
  EXPECT_FALSE(certificates.allows("", {"spiffe://example.org/workers/7"}));
  // What an authority was tricked into signing must not be cut short.
  EXPECT_FALSE(certificates.allows("", {std::string("dashboard\0.evil.example", 23)}));

  const MethodRules both = certificates.allow("trainer");
  EXPECT_TRUE(both.allows("trainer", {}));
  EXPECT_TRUE(both.allows("", {"dashboard"}));
  EXPECT_FALSE(both.allows("observer", {"observer"}));
}

TEST(MethodRulesTest, RulesAreValues) {
  const MethodRules rules = allow("a").limit_calls(2);
  EXPECT_EQ(rules, allow("a").limit_calls(2));
  EXPECT_NE(rules, allow("a").limit_calls(3));
  EXPECT_NE(rules, allow("a").limit_calls(2).limit_bytes(2));
  EXPECT_NE(rules, allow("b").limit_calls(2));
  EXPECT_NE(rules, allow_identity("a").limit_calls(2));
  EXPECT_NE(rules, rules.allow("b"));
  EXPECT_EQ(rules.max_calls(), 2);
}

TEST(MethodRulesTest, WhatMakesNoSenseIsRefused) {
  EXPECT_THAT(refusal([] { (void)allow(""); }), HasSubstr("1 to 512 bytes"));
  EXPECT_THAT(refusal([] { (void)allow_identity(""); }), HasSubstr("1 to 512 bytes"));
  EXPECT_THAT(refusal([] { (void)allow_identity(std::string(513, 'x')); }), HasSubstr("has 513"));
  EXPECT_THAT(refusal([] { (void)allow("spiffe://x/*"); }),
              HasSubstr("allow(\"spiffe://x/*\") matches no worker"));
  EXPECT_THAT(refusal([] { (void)allow(std::string(129, '?')); }), HasSubstr("matches no worker"));
  EXPECT_THAT(refusal([] { (void)MethodRules().limit_calls(0); }), HasSubstr("limit_calls(0)"));
  EXPECT_THAT(refusal([] { (void)MethodRules().limit_bytes(-1); }), HasSubstr("limit_bytes(-1)"));
}

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

TEST(MethodLoadTest, CallsUpToTheLimit) {
  const auto load = std::make_shared<MethodLoad>(2, kNoLimit);
  auto first = load->admit(10);
  auto second = load->admit(20);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(load->calls(), 2);
  EXPECT_EQ(load->bytes(), 30);
  const auto third = load->admit(0);
  EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(third.status().message()), HasSubstr("2 calls at once"));
  first->give_back();
  first->give_back();
  EXPECT_EQ(load->calls(), 1);
  EXPECT_EQ(load->bytes(), 20);
  EXPECT_TRUE(load->admit(0).ok());
}

TEST(MethodLoadTest, BytesUpToTheLimit) {
  const auto load = std::make_shared<MethodLoad>(kNoLimit, 100);
  const auto first = load->admit(60);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(std::string(load->admit(41).status().message()),
              HasSubstr("100 bytes of arguments at once, and with this call's 41 there would be "
                        "101"));
  EXPECT_TRUE(load->admit(40).ok());
  EXPECT_THAT(std::string(load->admit(101).status().message()), HasSubstr("has 101 bytes"));
  EXPECT_EQ(load->admit(kNoLimit).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(load->bytes(), 60);
}

TEST(MethodLoadTest, AShareIsGivenBackOnceWhereverItGoes) {
  auto load = std::make_shared<MethodLoad>(kNoLimit, kNoLimit);
  {
    std::vector<MethodLoad::Share> shares;
    for (int i = 0; i < 10; ++i) shares.push_back(*load->admit(1));
    EXPECT_EQ(load->calls(), 10);
    MethodLoad::Share other = std::move(shares[3]);
    shares[4] = std::move(shares[5]);
    EXPECT_EQ(load->calls(), 9);
    MethodLoad::Share& same = shares[4];
    shares[4] = std::move(same);
    EXPECT_EQ(load->calls(), 9);
  }
  EXPECT_EQ(load->calls(), 0);
  EXPECT_EQ(load->bytes(), 0);
  // Its worker may have gone.
  std::optional<MethodLoad::Share> last = *load->admit(5);
  const std::weak_ptr<MethodLoad> watched = load;
  load.reset();
  EXPECT_FALSE(watched.expired());
  last.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(MethodLoadTest, ManyThreadsNeverExceedIt) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 5000;
  const auto load = std::make_shared<MethodLoad>(2, 3);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&load] {
      for (int round = 0; round < kRounds; ++round) {
        const auto share = load->admit(round % 2 + 1);
        EXPECT_LE(load->calls(), 2);
        EXPECT_LE(load->bytes(), 3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(load->calls(), 0);
  EXPECT_EQ(load->bytes(), 0);
}

}  // namespace
}  // namespace sinew
