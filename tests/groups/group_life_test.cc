// Every order of events of a group's life: what is under way ends once, and nothing begins when it
// must not. And what ranks say to each other about their calls, and where they write it.

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/groups/internal/call_signature.h"
#include "sinew/groups/internal/group_life.h"
#include "sinew/groups/internal/operation_board.h"
#include "sinew/groups/internal/store_backend.h"
#include "sinew/groups/store.h"

using sinew::ReduceOp;
using sinew::internal::CallSignature;
using sinew::internal::check_agreement;
using sinew::internal::Function;
using sinew::internal::GroupLife;
using sinew::internal::OperationBoard;
using State = sinew::internal::GroupLife::State;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

/// A life, and what must hold of it.
struct Walk {
  GroupLife life{"g"};
  std::set<GroupLife::OperationId> open;
  std::set<GroupLife::OperationId> ended;
  bool has_failed = false;
  bool is_destroyed = false;
  std::vector<std::string> path;

  void end_all(const std::vector<GroupLife::OperationId>& ids) {
    for (const auto id : ids) {
      ASSERT_EQ(open.erase(id), 1U) << "told twice";
      ended.insert(id);
    }
  }
};

enum class Event { kBegin, kEndFirst, kEndOld, kBeginFailing, kFail, kDestroy };
constexpr Event kEvents[] = {Event::kBegin,        Event::kEndFirst, Event::kEndOld,
                             Event::kBeginFailing, Event::kFail,     Event::kDestroy};

void step(Walk& walk, Event event) {
  const bool usable = walk.life.state() == State::kOpen;
  switch (event) {
    case Event::kBegin: {
      const auto id = walk.life.begin();
      ASSERT_EQ(id.ok(), usable);
      if (id.ok()) {
        ASSERT_TRUE(walk.open.insert(*id).second);
        ASSERT_EQ(walk.ended.count(*id), 0U);
      } else {
        ASSERT_EQ(id.status().code(), absl::StatusCode::kFailedPrecondition);
        ASSERT_THAT(std::string(id.status().message()),
                    HasSubstr(walk.is_destroyed ? "is destroyed" : "why"));
      }
      break;
    }
    case Event::kEndFirst:
      if (walk.open.empty()) break;
      ASSERT_TRUE(walk.life.end(*walk.open.begin()));
      walk.ended.insert(*walk.open.begin());
      walk.open.erase(walk.open.begin());
      break;
    case Event::kEndOld:
      if (!walk.ended.empty()) {
        ASSERT_FALSE(walk.life.end(*walk.ended.begin()));
      }
      break;
    case Event::kBeginFailing:
      ASSERT_EQ(walk.life.begin_failing(absl::UnavailableError("why")), usable);
      walk.has_failed = walk.has_failed || usable;
      break;
    case Event::kFail: {
      const bool could = usable || walk.life.state() == State::kFailing;
      walk.end_all(walk.life.fail(absl::UnavailableError("why")));
      if (could) {
        walk.has_failed = true;
        ASSERT_TRUE(walk.open.empty());
      }
      break;
    }
    case Event::kDestroy:
      walk.end_all(walk.life.destroy());
      walk.is_destroyed = true;
      ASSERT_TRUE(walk.open.empty());
      break;
  }
  ASSERT_EQ(walk.life.num_operations(), walk.open.size());
  if (walk.is_destroyed) {
    ASSERT_EQ(walk.life.state(), State::kDestroyed);
  } else if (walk.has_failed) {
    ASSERT_NE(walk.life.state(), State::kOpen);
    ASSERT_FALSE(walk.life.reason().ok());
  } else {
    ASSERT_EQ(walk.life.state(), State::kOpen);
  }
  // A failed or destroyed group has nothing under way.
  if (walk.life.state() == State::kFailed || walk.life.state() == State::kDestroyed) {
    ASSERT_EQ(walk.life.num_operations(), 0U);
  }
}

void explore(const Walk& from, int depth, std::int64_t& walks) {
  for (const Event event : kEvents) {
    Walk walk = from;
    walk.path.push_back(absl::StrCat(static_cast<int>(event)));
    step(walk, event);
    if (::testing::Test::HasFatalFailure()) {
      ADD_FAILURE() << "events: " << ::testing::PrintToString(walk.path);
      return;
    }
    ++walks;
    if (depth > 1) explore(walk, depth - 1, walks);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(GroupLife, HoldsInEveryOrderOfEvents) {
  std::int64_t walks = 0;
  explore(Walk(), 7, walks);
  EXPECT_GT(walks, 300'000);
}

TEST(GroupLife, TheFirstReasonCounts) {
  GroupLife life("g");
  EXPECT_TRUE(life.begin_failing(absl::UnavailableError("first")));
  EXPECT_FALSE(life.begin_failing(absl::UnavailableError("second")));
  life.fail(absl::UnavailableError("what the ranks agree on"));
  life.fail(absl::UnavailableError("third"));
  EXPECT_EQ(life.reason().message(), "what the ranks agree on");
}

CallSignature signature(Function function, at::ScalarType type, std::vector<std::int64_t> shape) {
  CallSignature made;
  made.function = function;
  made.type = type;
  made.shape = std::move(shape);
  return made;
}

TEST(CallSignature, SurvivesTheWay) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    CallSignature sent = signature(static_cast<Function>(random() % 12),
                                   static_cast<at::ScalarType>(random() % 12), {});
    for (unsigned dimension = random() % 8; dimension > 0; --dimension) {
      sent.shape.push_back(random() % 100);
    }
    if (random() % 2 == 0) sent.op = static_cast<ReduceOp>(random() % 5);
    sent.root = static_cast<int>(random() % 4) - 1;
    if (sent.function == Function::kAllToAll || sent.function == Function::kReduceScatter) {
      sent.sent = {1, 2, 3};
      sent.received = {4, 5, 6};
    }
    const std::vector<std::int64_t> numbers = sent.encode(3);
    ASSERT_EQ(numbers.size(), CallSignature::encoded_count(3));
    const auto received = CallSignature::decode(numbers.data(), 3);
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(received->key(), sent.key());
    EXPECT_EQ(received->text(), sent.text());
    EXPECT_EQ(received->sent, sent.sent);
    EXPECT_EQ(received->received, sent.received);
  }
}

TEST(CallSignature, NoiseIsNoSignature) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::int64_t> numbers = signature(Function::kAllReduce, at::kFloat, {3}).encode(2);
    numbers[random() % 6] = static_cast<std::int64_t>(random());
    const auto received = CallSignature::decode(numbers.data(), 2);
    if (received) {
      EXPECT_FALSE(received->text().empty());
    }
  }
}

TEST(CallSignature, DiffersInAllThatRanksMustAgreeAbout) {
  const CallSignature plain = signature(Function::kAllReduce, at::kFloat, {2, 3});
  CallSignature op = plain;
  op.op = ReduceOp::kMax;
  CallSignature root = plain;
  root.root = 1;
  const std::vector<CallSignature> all{plain,
                                       op,
                                       root,
                                       signature(Function::kReduce, at::kFloat, {2, 3}),
                                       signature(Function::kAllReduce, at::kInt, {2, 3}),
                                       signature(Function::kAllReduce, at::kFloat, {3, 2}),
                                       signature(Function::kAllReduce, at::kFloat, {2, 3, 1}),
                                       signature(Function::kAllReduce, at::kFloat, {})};
  std::set<std::uint64_t> keys;
  for (const CallSignature& each : all) keys.insert(each.key());
  EXPECT_EQ(keys.size(), all.size());
  for (std::size_t other = 1; other < all.size(); ++other) {
    const absl::Status status = check_agreement({{0, plain}, {1, plain}, {2, all[other]}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("ranks 0 and 1 call"), HasSubstr("rank 2 calls")));
  }
  EXPECT_TRUE(check_agreement({{0, plain}, {1, plain}}).ok());
  EXPECT_THAT(std::string(check_agreement({{0, plain}, {1, std::nullopt}}).message()),
              HasSubstr("rank 1 calls something else"));
}

TEST(OperationBoard, TellsWhoIsAtWhat) {
  const sinew::Store store = sinew::Store::in_memory();
  const OperationBoard first(store, 0, 3);
  const OperationBoard second(store, 1, 3);
  // More dimensions than are written.
  const CallSignature same =
      signature(Function::kAllReduce, at::kFloat, {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3});
  CallSignature longer = same;
  longer.shape.back() = 4;
  first.publish(7, same);
  EXPECT_EQ(first.missing_ranks(7), (std::vector<int>{1, 2}));
  second.publish(6, longer);
  EXPECT_EQ(first.missing_ranks(7), (std::vector<int>{1, 2}));
  // It is at another operation.
  EXPECT_TRUE(first.check_agreement(7, same).ok());
  second.publish(7, same);
  EXPECT_EQ(first.missing_ranks(7), (std::vector<int>{2}));
  EXPECT_EQ(first.missing_ranks(6), (std::vector<int>{2}));
  EXPECT_TRUE(first.check_agreement(7, same).ok()) << first.check_agreement(7, same);
  second.publish(7, longer);
  EXPECT_EQ(first.check_agreement(7, same).code(), absl::StatusCode::kInvalidArgument);

  EXPECT_TRUE(first.end().ok());
  EXPECT_EQ(second.agree_on_end(absl::UnavailableError("second: colon")),
            absl::UnavailableError("second: colon"));
  EXPECT_EQ(first.agree_on_end(absl::DeadlineExceededError("first")),
            absl::UnavailableError("second: colon"));
  EXPECT_EQ(first.end(), absl::UnavailableError("second: colon"));
}

/// A store whose server does not answer.
class SilentStore final : public sinew::internal::StoreBackend {
 public:
  absl::StatusOr<sinew::proto::StoreReply> call(sinew::proto::StoreRequest,
                                                sinew::internal::Clock::TimePoint) override {
    ++calls;
    return absl::DeadlineExceededError("it does not answer");
  }

  int calls = 0;
};

// Each question would take its time, and the operation's limit is over.
TEST(OperationBoard, AStoreThatDoesNotAnswerIsAskedOnce) {
  const auto silent = std::make_shared<SilentStore>();
  const OperationBoard board(sinew::StoreAccess::make(silent), 0, 2);
  const CallSignature call = signature(Function::kAllReduce, at::kFloat, {3});
  board.publish(1, call);
  EXPECT_TRUE(board.check_agreement(1, call).ok());
  EXPECT_TRUE(board.missing_ranks(1).empty());
  EXPECT_EQ(board.agree_on_end(absl::InternalError("own")), absl::InternalError("own"));
  EXPECT_TRUE(board.end().ok());
  EXPECT_EQ(silent->calls, 1);
}

}  // namespace
