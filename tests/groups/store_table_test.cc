// The table of a store: hostile requests, limits, waits; and a random walk against a plain model.

#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/groups/internal/store_frames.h"
#include "sinew/groups/internal/store_table.h"

using namespace std::chrono_literals;
using sinew::internal::Clock;
using sinew::internal::FrameReader;
using sinew::internal::greeting_frame;
using sinew::internal::kMaxGreetingBytes;
using sinew::internal::kMaxStoreFrameBytes;
using sinew::internal::seal_frame;
using sinew::internal::StoreTable;
using sinew::proto::StoreFrame;
using sinew::proto::StoreReply;
using sinew::proto::StoreRequest;
using ::testing::HasSubstr;

namespace {

constexpr Clock::TimePoint kStart{};

StoreRequest request(StoreRequest::Kind kind, const std::vector<std::string>& keys,
                     const std::string& value = "", const std::string& expected = "") {
  StoreRequest message;
  message.set_kind(kind);
  for (const std::string& key : keys) message.add_keys(key);
  message.set_value(value);
  message.set_expected(expected);
  message.set_timeout_ms(1000);
  return message;
}

absl::StatusCode code(const std::vector<StoreTable::Answer>& answers) {
  return static_cast<absl::StatusCode>(answers.at(0).reply.code());
}

TEST(StoreTable, RefusesWhatIsNoRequest) {
  StoreTable table;
  const auto refused = [&](const StoreRequest& message) {
    return code(table.handle(1, message, kStart));
  };
  EXPECT_EQ(refused(StoreRequest()), absl::StatusCode::kUnimplemented);
  StoreRequest unknown;
  unknown.set_kind(static_cast<StoreRequest::Kind>(77));
  EXPECT_EQ(refused(unknown), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(refused(request(StoreRequest::SET, {})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(request(StoreRequest::GET, {"a", "b"})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(request(StoreRequest::WAIT, {})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(request(StoreRequest::SET, {""})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(request(StoreRequest::SET, {std::string(4097, 'k')})),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(request(StoreRequest::SET, {"k"}, std::string((16 << 20) + 1, 'v'))),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      refused(request(StoreRequest::COMPARE_SET, {"k"}, "v", std::string((16 << 20) + 1, 'v'))),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table.num_keys(), 0U);
}

TEST(StoreTable, KeepsItsLimits) {
  StoreTable::Limits limits;
  limits.max_keys = 3;
  limits.max_bytes = 20;
  limits.max_waiters = 2;
  limits.max_keys_of_a_wait = 2;
  StoreTable table(limits);
  const auto set = [&](const std::string& key, const std::string& value) {
    return code(table.handle(1, request(StoreRequest::SET, {key}, value), kStart));
  };
  EXPECT_EQ(set("a", std::string(19, 'x')), absl::StatusCode::kOk);
  EXPECT_EQ(set("b", ""), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(set("a", "1"), absl::StatusCode::kOk);
  EXPECT_EQ(table.used_bytes(), 2U);
  EXPECT_EQ(set("b", ""), absl::StatusCode::kOk);
  EXPECT_EQ(set("c", ""), absl::StatusCode::kOk);
  EXPECT_EQ(set("d", ""), absl::StatusCode::kResourceExhausted);
  table.handle(1, request(StoreRequest::DELETE, {"a"}), kStart);
  EXPECT_EQ(table.used_bytes(), 2U);
  EXPECT_EQ(set("a", "1"), absl::StatusCode::kOk);
  EXPECT_TRUE(table.handle(2, request(StoreRequest::GET, {"x"}), kStart).empty());
  EXPECT_TRUE(table.handle(3, request(StoreRequest::GET, {"x"}), kStart).empty());
  EXPECT_EQ(code(table.handle(4, request(StoreRequest::GET, {"x"}), kStart)),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(table.handle(5, request(StoreRequest::WAIT, {"x", "y", "z"}), kStart)),
            absl::StatusCode::kInvalidArgument);
  table.forget(2);
  table.forget(2);
  EXPECT_TRUE(table.handle(4, request(StoreRequest::GET, {"x"}), kStart).empty());
}

TEST(StoreTable, KeysThatAreWaitedForTakeRoomToo) {
  StoreTable::Limits limits;
  limits.max_waiting_bytes = 10;
  StoreTable table(limits);
  const auto waits = [&](StoreTable::WaiterId id, const std::vector<std::string>& keys) {
    return table.handle(id, request(StoreRequest::WAIT, keys), kStart).empty();
  };
  // However it ends, there is room again.
  for (StoreTable::WaiterId id = 1; id < 40; id += 10) {
    EXPECT_TRUE(waits(id, {"aaaa", "bbbb", "bbbb"}));
    EXPECT_TRUE(waits(id + 1, {"cc"}));
    EXPECT_EQ(code(table.handle(id + 2, request(StoreRequest::WAIT, {"d"}), kStart)),
              absl::StatusCode::kResourceExhausted);
    if (id == 1) {
      table.forget(id);
      table.forget(id + 1);
    } else if (id == 11) {
      EXPECT_EQ(table.expire(kStart + 1000s).size(), 2U);
    } else if (id == 21) {
      EXPECT_EQ(table.fail_all(absl::UnavailableError("over")).size(), 2U);
    } else {
      table.handle(id + 3, request(StoreRequest::SET, {"aaaa"}), kStart);
      table.handle(id + 4, request(StoreRequest::SET, {"cc"}), kStart);
      EXPECT_FALSE(waits(id + 5, {"eeee"}));
      table.handle(id + 6, request(StoreRequest::SET, {"bbbb"}), kStart);
    }
  }
  EXPECT_TRUE(waits(100, {"eeeeeeeeee"}));
}

TEST(StoreTable, SumsThatDoNotFitAreRefused) {
  StoreTable table;
  StoreRequest add = request(StoreRequest::ADD, {"n"});
  add.set_amount(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(code(table.handle(1, add, kStart)), absl::StatusCode::kOk);
  EXPECT_EQ(code(table.handle(1, add, kStart)), absl::StatusCode::kOutOfRange);
}

// All that a store does, against a map and a list of those that wait.
TEST(StoreTable, RandomWalksAgreeWithAPlainModel) {
  struct Waiting {
    bool wants_value;
    std::set<std::string> missing;
    Clock::TimePoint deadline;
  };
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto pick = [&](unsigned count) { return static_cast<int>(random() % count); };
    StoreTable table;
    std::map<std::string, std::string> values;
    std::map<StoreTable::WaiterId, Waiting> waiting;
    Clock::TimePoint now = kStart;
    for (StoreTable::WaiterId id = 1; id <= 200; ++id) {
      const std::string key = absl::StrCat("k", pick(4));
      std::map<StoreTable::WaiterId, int> expected_codes;
      std::vector<StoreTable::Answer> answers;
      std::optional<std::string> changed;
      const int action = pick(8);
      if (action == 0) {
        now += std::chrono::milliseconds(pick(1500));
        answers = table.expire(now);
        for (auto it = waiting.begin(); it != waiting.end();) {
          if (it->second.deadline > now) {
            ++it;
            continue;
          }
          expected_codes[it->first] = static_cast<int>(absl::StatusCode::kDeadlineExceeded);
          it = waiting.erase(it);
        }
      } else if (action == 1) {
        if (!waiting.empty()) {
          table.forget(waiting.begin()->first);
          waiting.erase(waiting.begin());
        }
      } else if (action <= 3) {
        std::vector<std::string> keys{key};
        if (action == 3) keys.push_back(absl::StrCat("k", pick(4)));
        answers = table.handle(
            id, request(action == 2 ? StoreRequest::GET : StoreRequest::WAIT, keys), now);
        Waiting entry{action == 2, {}, now + 1000ms};
        for (const std::string& each : keys) {
          if (values.count(each) == 0) entry.missing.insert(each);
        }
        if (entry.missing.empty()) {
          expected_codes[id] = 0;
        } else {
          waiting[id] = entry;
        }
      } else if (action == 4) {
        answers = table.handle(id, request(StoreRequest::DELETE, {key}), now);
        EXPECT_EQ(answers.at(0).reply.number(), values.erase(key));
        expected_codes[id] = 0;
      } else if (action == 5) {
        const std::string expected = pick(2) == 0 ? "" : "v1";
        answers = table.handle(id, request(StoreRequest::COMPARE_SET, {key}, "v2", expected), now);
        const auto found = values.find(key);
        const bool sets = found == values.end() ? expected.empty() : found->second == expected;
        const std::string result = sets ? "v2" : found == values.end() ? expected : found->second;
        EXPECT_EQ(answers.at(0).reply.value(), result);
        if (sets) {
          values[key] = "v2";
          changed = key;
        }
        expected_codes[id] = 0;
      } else {
        answers = table.handle(id, request(StoreRequest::SET, {key}, "v1"), now);
        values[key] = "v1";
        changed = key;
        expected_codes[id] = 0;
      }
      for (auto it = waiting.begin(); changed && it != waiting.end();) {
        it->second.missing.erase(*changed);
        if (!it->second.missing.empty()) {
          ++it;
          continue;
        }
        expected_codes[it->first] = 0;
        it = waiting.erase(it);
      }
      std::map<StoreTable::WaiterId, int> codes;
      for (const StoreTable::Answer& answer : answers) {
        EXPECT_TRUE(codes.emplace(answer.waiter, answer.reply.code()).second) << "told twice";
      }
      ASSERT_EQ(codes, expected_codes);
      ASSERT_EQ(table.num_keys(), values.size());
      ASSERT_EQ(table.num_waiters(), waiting.size());
      std::optional<Clock::TimePoint> next;
      for (const auto& [each, entry] : waiting) {
        if (!next || entry.deadline < *next) next = entry.deadline;
      }
      ASSERT_EQ(table.next_expiry(), next);
    }
    EXPECT_EQ(table.fail_all(absl::UnavailableError("over")).size(), waiting.size());
    EXPECT_EQ(table.num_waiters(), 0U);
    EXPECT_EQ(table.next_expiry(), std::nullopt);
  }
}

TEST(StoreFrames, ComeInPieces) {
  StoreFrame frame;
  frame.set_id(7);
  frame.mutable_request()->set_value(std::string(1000, 'x'));
  const std::string bytes = seal_frame(greeting_frame()) + seal_frame(frame) + seal_frame(frame);
  FrameReader reader;
  int frames = 0;
  for (const char byte : bytes) {
    reader.append(&byte, 1);
    const auto next = reader.next(kMaxStoreFrameBytes);
    ASSERT_TRUE(next.ok());
    if (!next->has_value()) continue;
    ++frames;
    EXPECT_EQ((*next)->id(), frames == 1 ? 0U : 7U);
  }
  EXPECT_EQ(frames, 3);
}

TEST(StoreFrames, WhatIsNoFrameIsRefused) {
  FrameReader large;
  large.append("\xff\xff\xff\xff", 4);
  EXPECT_FALSE(large.next(kMaxStoreFrameBytes).ok());
  FrameReader greeting;
  greeting.append("\x41\x00\x00\x00", 4);
  EXPECT_FALSE(greeting.next(kMaxGreetingBytes).ok());
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    std::string bytes = seal_frame(greeting_frame());
    for (int change = 0; change < 3; ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    FrameReader reader;
    reader.append(bytes.data(), bytes.size());
    // Whatever comes out: nothing crashes.
    for (int step = 0; step < 4; ++step) {
      const auto next = reader.next(kMaxGreetingBytes);
      if (!next.ok() || !next->has_value()) break;
      (void)sinew::internal::check_greeting(**next);
    }
  }
}

}  // namespace
