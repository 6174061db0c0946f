#include "sinew/rpc/internal/batch_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ticket = BatchQueue::Ticket;
using Tickets = std::vector<Ticket>;

constexpr Clock::TimePoint kNever = Clock::TimePoint::max();

Clock::TimePoint at(int ms) { return Clock::TimePoint(std::chrono::hours(1) + milliseconds(ms)); }

BatcherOptions options_of(std::size_t max_batch, std::chrono::nanoseconds max_wait) {
  BatcherOptions options;
  options.max_batch = max_batch;
  options.max_wait = max_wait;
  return options;
}

Tickets tickets(std::initializer_list<int> numbers) {
  Tickets result;
  for (const int number : numbers) result.push_back(Ticket{static_cast<std::uint64_t>(number)});
  return result;
}

// ---- when a batch goes: one row for each reason, and for each thing in its way

struct Row {
  const char* name;
  BatcherOptions options;
  // When calls came, in ms.
  std::vector<int> arrivals;
  int asked_at;
  std::size_t goes;
  // In ms; -1: never.
  int looks_again;
};

std::vector<Row> rows() {
  BatcherOptions expecting = options_of(8, milliseconds(10));
  expecting.expected = 3;
  BatcherOptions patient = options_of(3, kNoTimeout);
  BatcherOptions patient_expecting = options_of(8, kNoTimeout);
  patient_expecting.expected = 2;
  BatcherOptions expecting_many = options_of(2, milliseconds(10));
  expecting_many.expected = 5;
  return {
      {"nothing_waits", options_of(2, milliseconds(10)), {}, 50, 0, -1},
      {"waits_for_company", options_of(3, milliseconds(10)), {0, 4}, 9, 0, 10},
      {"full", options_of(2, milliseconds(10)), {0, 1}, 1, 2, -1},
      {"more_than_full", options_of(2, milliseconds(10)), {0, 1, 2}, 2, 2, -1},
      {"waited_long_enough", options_of(3, milliseconds(10)), {0, 4}, 10, 2, -1},
      {"no_wait", options_of(3, milliseconds(0)), {5}, 5, 1, -1},
      {"batches_of_one", options_of(1, milliseconds(10)), {5}, 5, 1, -1},
      {"all_are_in", expecting, {0, 1, 2}, 2, 3, -1},
      {"one_is_missing", expecting, {0, 1}, 2, 0, 10},
      {"one_stays_away", expecting, {0, 1}, 10, 2, -1},
      {"full_before_all_are_in", expecting_many, {0, 1}, 1, 2, -1},
      {"no_time_counts", patient, {0, 1}, 1'000'000, 0, -1},
      {"patient_and_full", patient, {0, 1, 2}, 2, 3, -1},
      {"patient_and_all_in", patient_expecting, {0, 1}, 1, 2, -1},
  };
}

class BatchQueueTable : public ::testing::TestWithParam<Row> {};

TEST_P(BatchQueueTable, Goes) {
  const Row& row = GetParam();
  BatchQueue queue(row.options);
  for (const int arrival : row.arrivals) ASSERT_TRUE(queue.add(at(arrival), kNever).ok());
  EXPECT_EQ(queue.take_batch(at(row.asked_at)).size(), row.goes);
  const auto next = queue.look_again();
  if (row.looks_again < 0) {
    EXPECT_FALSE(next.has_value());
  } else {
    EXPECT_EQ(next, at(row.looks_again));
  }
  EXPECT_EQ(queue.stats().queued, row.arrivals.size() - row.goes);
  EXPECT_EQ(queue.stats().running, row.goes > 0 ? 1u : 0u);
}

INSTANTIATE_TEST_SUITE_P(Rules, BatchQueueTable, ::testing::ValuesIn(rows()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(BatchQueueTest, OneAfterTheOther) {
  BatchQueue queue(options_of(2, milliseconds(10)));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(queue.add(at(i), kNever).ok());
  EXPECT_EQ(queue.take_batch(at(5)), tickets({1, 2}));
  EXPECT_THAT(queue.take_batch(at(50)), IsEmpty()) << "one runs";
  queue.batch_ended();
  EXPECT_EQ(queue.take_batch(at(50)), tickets({3, 4}));
  queue.batch_ended();
  EXPECT_EQ(queue.look_again(), at(14));
  EXPECT_THAT(queue.take_batch(at(13)), IsEmpty());
  EXPECT_EQ(queue.take_batch(at(14)), tickets({5}));
}

TEST(BatchQueueTest, SeveralAtOnce) {
  BatcherOptions options = options_of(1, milliseconds(10));
  options.max_concurrent = 2;
  BatchQueue queue(options);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.add(at(0), kNever).ok());
  EXPECT_EQ(queue.take_batch(at(0)), tickets({1}));
  EXPECT_EQ(queue.take_batch(at(0)), tickets({2}));
  EXPECT_THAT(queue.take_batch(at(0)), IsEmpty());
}

TEST(BatchQueueTest, ExpectationsChange) {
  BatcherOptions options = options_of(8, kNoTimeout);
  options.expected = 3;
  BatchQueue queue(options);
  ASSERT_TRUE(queue.add(at(0), kNever).ok());
  ASSERT_TRUE(queue.add(at(0), kNever).ok());
  EXPECT_THAT(queue.take_batch(at(1)), IsEmpty());
  queue.set_expected(2);
  EXPECT_EQ(queue.take_batch(at(1)), tickets({1, 2}));
  queue.batch_ended();
  queue.set_expected(0);
  ASSERT_TRUE(queue.add(at(2), kNever).ok());
  EXPECT_THAT(queue.take_batch(at(3)), IsEmpty()) << "nobody knows who else comes";
}

TEST(BatchQueueTest, TooManyAreRefused) {
  BatcherOptions options = options_of(2, kNoTimeout);
  options.max_queued = 2;
  BatchQueue queue(options);
  ASSERT_TRUE(queue.add(at(0), at(5)).ok());
  ASSERT_TRUE(queue.add(at(0), kNever).ok());
  const absl::Status refused = queue.add(at(1), kNever).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("max_queued = 2"));
  EXPECT_EQ(queue.take_expired(at(5)), tickets({1}));
  EXPECT_TRUE(queue.add(at(5), kNever).ok());
  EXPECT_EQ(queue.stats().rejected, 1u);
  EXPECT_EQ(queue.stats().given_up, 1u);
}

TEST(BatchQueueTest, WhoGivesUpIsNotCounted) {
  BatchQueue queue(options_of(2, milliseconds(10)));
  const Ticket first = *queue.add(at(0), kNever);
  EXPECT_TRUE(queue.remove(first));
  EXPECT_FALSE(queue.remove(first));
  EXPECT_FALSE(queue.look_again().has_value());
  ASSERT_TRUE(queue.add(at(3), kNever).ok());
  EXPECT_THAT(queue.take_batch(at(12)), IsEmpty()) << "the one that is left has waited for 9 ms";
  EXPECT_EQ(queue.take_batch(at(13)), tickets({2}));
}

TEST(BatchQueueTest, RefusesOptionsThatMakeNoSense) {
  const auto text = [](const BatcherOptions& options) {
    const absl::Status status = BatchQueue::check(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(text(options_of(0, milliseconds(1))), HasSubstr("max_batch"));
  EXPECT_THAT(text(options_of(1, milliseconds(-1))), HasSubstr("max_wait"));
  BatcherOptions narrow = options_of(8, milliseconds(1));
  narrow.max_queued = 7;
  EXPECT_THAT(text(narrow), HasSubstr("max_queued"));
  BatcherOptions idle;
  idle.max_concurrent = 0;
  EXPECT_THAT(text(idle), HasSubstr("max_concurrent"));
  EXPECT_TRUE(BatchQueue::check(BatcherOptions()).ok());
}

// ---- every order of a few events, against what the rules say

enum class Event { kCall, kHurriedCall, kGiveUp, kEndBatch, kTime, kExpectTwo, kExpectNobody };
constexpr Event kEvents[] = {Event::kCall,        Event::kHurriedCall, Event::kGiveUp,
                             Event::kEndBatch,    Event::kTime,        Event::kExpectTwo,
                             Event::kExpectNobody};

/// A queue beside a plain list of who waits, which is driven as a Batcher drives it.
class World {
 public:
  explicit World(const BatcherOptions& options) : options_(options), queue_(options) {}

  void happen(Event event) {
    switch (event) {
      case Event::kCall:
        return call(kNever);
      case Event::kHurriedCall:
        return call(at(now_ + 2));
      case Event::kGiveUp:
        if (waiting_.empty()) return;
        EXPECT_TRUE(queue_.remove(waiting_.begin()->first));
        waiting_.erase(waiting_.begin());
        return go_on();
      case Event::kEndBatch:
        if (running_ == 0) return;
        --running_;
        queue_.batch_ended();
        return go_on();
      case Event::kTime:
        return pass_time();
      case Event::kExpectTwo:
      case Event::kExpectNobody:
        options_.expected = event == Event::kExpectTwo ? 2 : 0;
        queue_.set_expected(options_.expected);
        return go_on();
    }
  }

 private:
  struct Call {
    Clock::TimePoint came;
    Clock::TimePoint deadline;
  };

  void call(Clock::TimePoint deadline) {
    expire();
    const auto ticket = queue_.add(at(now_), deadline);
    EXPECT_EQ(ticket.ok(), waiting_.size() < options_.max_queued);
    if (ticket.ok()) {
      EXPECT_TRUE(waiting_.empty() || waiting_.rbegin()->first < *ticket);
      waiting_.emplace(*ticket, Call{at(now_), deadline});
    }
    go_on();
  }

  // What look_again() says is kept: nothing leaves before, and something does then.
  void pass_time() {
    const auto next = queue_.look_again();
    ++now_;
    if (next.has_value()) {
      EXPECT_GE(*next, at(now_)) << "it was due before";
    }
    const std::size_t before = waiting_.size();
    go_on();
    EXPECT_EQ(waiting_.size() < before, next.has_value() && *next <= at(now_));
  }

  void expire() {
    for (const Ticket ticket : queue_.take_expired(at(now_))) {
      EXPECT_LE(waiting_.at(ticket).deadline, at(now_));
      waiting_.erase(ticket);
    }
    for (const auto& [ticket, call] : waiting_) EXPECT_GT(call.deadline, at(now_));
  }

  bool one_may_go() const {
    if (waiting_.empty() || running_ == options_.max_concurrent) return false;
    return waiting_.size() >= options_.max_batch ||
           (options_.expected > 0 && waiting_.size() >= options_.expected) ||
           waiting_.begin()->second.came + options_.max_wait <= at(now_);
  }

  void go_on() {
    expire();
    for (Tickets batch = queue_.take_batch(at(now_)); !batch.empty();
         batch = queue_.take_batch(at(now_))) {
      EXPECT_TRUE(one_may_go());
      EXPECT_EQ(batch.size(), std::min(options_.max_batch, waiting_.size()));
      for (const Ticket ticket : batch) {
        ASSERT_FALSE(waiting_.empty());
        EXPECT_EQ(waiting_.begin()->first, ticket) << "in the order of arrival";
        waiting_.erase(waiting_.begin());
      }
      ++running_;
    }
    EXPECT_FALSE(one_may_go()) << waiting_.size() << " wait";
    EXPECT_EQ(queue_.stats().queued, waiting_.size());
    EXPECT_EQ(queue_.stats().running, running_);
  }

  BatcherOptions options_;
  BatchQueue queue_;
  int now_ = 0;
  std::map<Ticket, Call> waiting_;
  std::size_t running_ = 0;
};

void explore(const World& world, int depth) {
  if (depth == 0 || ::testing::Test::HasFailure()) return;
  for (const Event event : kEvents) {
    World next = world;
    next.happen(event);
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "event " << static_cast<int>(event) << ", " << depth << " from the end";
      return;
    }
    explore(next, depth - 1);
  }
}

TEST(BatchQueueTest, EveryOrderOfEvents) {
  constexpr int kDepth = 6;
  for (const std::size_t max_batch : {1, 2, 3}) {
    for (const auto max_wait : {milliseconds(0), milliseconds(1), milliseconds(3)}) {
      for (const std::size_t max_concurrent : {1, 2}) {
        BatcherOptions options = options_of(max_batch, max_wait);
        options.max_queued = 3;
        options.max_concurrent = max_concurrent;
        explore(World(options), kDepth);
        ASSERT_FALSE(HasFailure()) << "max_batch " << max_batch << ", max_wait " << max_wait.count()
                                   << " ms, max_concurrent " << max_concurrent;
      }
    }
  }
}

}  // namespace
}  // namespace sinew::internal
