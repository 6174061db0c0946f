// Objects that are called by one at a time: MethodRules::one_at_a_time().

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "sinew/tests/support/cluster.h"

namespace turns {

sinew::testing::Gate gate;
std::atomic<int> inside{0};
std::atomic<int> most_inside{0};

/// In a method: how many are in one at once.
struct Inside {
  Inside() {
    const int now = ++inside;
    int most = most_inside;
    while (now > most && !most_inside.compare_exchange_weak(most, now)) {
    }
  }
  ~Inside() { --inside; }
};

/// Without a mutex.
class Diary {
 public:
  void note(int number) {
    const Inside here;
    std::this_thread::yield();
    notes_.push_back(number);
  }
  void note_with(int number, const at::Tensor&) { note(number); }
  std::vector<int> notes() const { return notes_; }
  int wait_at_gate() {
    const Inside here;
    gate.pass();
    return 1;
  }
  /// Answers with what the next one has written.
  sinew::Future<int> next_note() { return next_.future(); }
  void write(int number) { next_.set_value(number); }
  /// Through a reference to itself, or by way of another worker.
  int ask(const sinew::RRef<Diary>& other);
  int ask_by_way_of(const sinew::WorkerInfo& worker, const sinew::RRef<Diary>& self);

 private:
  std::vector<int> notes_;
  sinew::Promise<int> next_;
};

int pass_on(const sinew::RRef<Diary>& diary);
void free_function() {}

/// Takes long to make.
class Slow : public Diary {
 public:
  Slow() { gate.pass(); }
  void note_here(int number) { note(number); }
  std::vector<int> all() const { return notes(); }
};

}  // namespace turns

SINEW_SERVICE(turns::Diary, (), note, note_with, notes, wait_at_gate, next_note, write, ask,
              ask_by_way_of);
SINEW_SERVICE(turns::Slow, (), note_here, all);
SINEW_METHOD(turns::pass_on, turns::free_function);

int turns::Diary::ask(const sinew::RRef<Diary>& other) {
  return other.call<&Diary::wait_at_gate>();
}
int turns::pass_on(const sinew::RRef<Diary>& diary) { return diary.call<&Diary::wait_at_gate>(); }
int turns::Diary::ask_by_way_of(const sinew::WorkerInfo& worker, const sinew::RRef<Diary>& self) {
  return sinew::current_worker().peer(worker).call<&turns::pass_on>(self);
}

namespace sinew {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::eventually;
using ::testing::HasSubstr;
using turns::Diary;

class TurnsOver : public testing::ClusterTest {
 protected:
  void SetUp() override {
    turns::gate.close();
    turns::inside = turns::most_inside = 0;
  }
  void TearDown() override {
    turns::gate.open();
    ClusterTest::TearDown();
  }
  void start_with(MethodRules rules, int size = 3) {
    start(size, serve<Diary, turns::Slow>(rules).add<&turns::pass_on>(),
          [](int, WorkerOptions& options) { options.num_threads = 6; });
  }
  RRef<Diary> make(int from = 0) const { return worker(from).peer(1).remote<Diary>(); }
};
SINEW_INSTANTIATE_CLUSTER_TEST(TurnsOver);

void expect_not_run(const RpcError& error, ErrorCode code) {
  EXPECT_EQ(error.code(), code) << error.what();
  EXPECT_EQ(error.execution(), Execution::kDidNotRun) << error.what();
}

// Small calls overtake those with large tensors on their way, and threads each other.
TEST_P(TurnsOver, OneAtATimeInTheOrderOfEachCaller) {
  start_with(one_at_a_time());
  const auto diary = std::make_shared<Diary>();
  worker(1).publish("diary", diary);
  constexpr int kCalls = 300;
  const at::Tensor large = at::zeros({1 << 19});
  std::vector<std::thread> callers;
  for (const int rank : {0, 2}) {
    callers.emplace_back([&, rank] {
      const RRef<Diary> there = worker(rank).find<Diary>("worker1/diary");
      std::vector<Future<void>> calls;
      for (int i = 0; i < kCalls; ++i) {
        const int number = rank * 1000 + i;
        calls.push_back(i % 25 == 3 ? there.async<&Diary::note_with>(number, large)
                                    : there.async<&Diary::note>(number));
      }
      for (const Future<void>& call : calls) call.wait();
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(turns::most_inside, 1);
  std::vector<int> of_each[2];
  for (const int number : diary->notes()) of_each[number / 1000 == 0 ? 0 : 1].push_back(number);
  for (const int rank : {0, 2}) {
    std::vector<int> expected;
    for (int i = 0; i < kCalls; ++i) expected.push_back(rank * 1000 + i);
    EXPECT_EQ(of_each[rank / 2], expected);
  }
}

TEST_P(TurnsOver, TwoReferencesToOneObjectShareItsTurns) {
  start_with(one_at_a_time());
  const auto diary = std::make_shared<Diary>();
  worker(1).publish("one", diary);
  worker(1).publish("other", diary);
  const auto one = worker(0).find<Diary>("worker1/one");
  const auto other = worker(2).find<Diary>("worker1/other");
  const Future<int> first = one.async<&Diary::wait_at_gate>();
  ASSERT_TRUE(turns::gate.wait_for_arrivals(1));
  const Future<int> second = other.async<&Diary::wait_at_gate>();
  // Another object is nobody's concern.
  const Future<int> elsewhere = make().async<&Diary::wait_at_gate>();
  ASSERT_TRUE(turns::gate.wait_for_arrivals(2));
  EXPECT_FALSE(second.done());
  turns::gate.open();
  EXPECT_EQ(first.wait() + second.wait() + elsewhere.wait(), 3);
  EXPECT_EQ(turns::most_inside, 2);
}

TEST_P(TurnsOver, CallsOfAnObjectThatIsBeingMadeKeepTheirOrder) {
  start_with(one_at_a_time());
  const auto slow = worker(0).peer(1).remote<turns::Slow>();
  std::vector<Future<void>> calls;
  std::vector<int> expected;
  for (int i = 0; i < 50; ++i) {
    calls.push_back(slow.async<&turns::Slow::note_here>(i));
    expected.push_back(i);
  }
  ASSERT_TRUE(turns::gate.wait_for_arrivals(1));
  turns::gate.open();
  for (const Future<void>& call : calls) call.wait();
  EXPECT_EQ(slow.call<&turns::Slow::all>(), expected);
}

TEST_P(TurnsOver, AChainThatComesBackIsAnErrorAtOnce) {
  start_with(one_at_a_time());
  const RRef<Diary> diary = make();
  const RpcError direct = error_of([&] { diary.within(kNoTimeout).call<&Diary::ask>(diary); });
  EXPECT_EQ(direct.code(), ErrorCode::kFailedPrecondition) << direct.what();
  EXPECT_THAT(direct.message(), HasSubstr("the object is having a call that led to this one: "
                                          "turns::Diary::ask -> turns::Diary::wait_at_gate"));
  const RpcError round = error_of(
      [&] { diary.within(kNoTimeout).call<&Diary::ask_by_way_of>(worker(2).info(), diary); });
  EXPECT_EQ(round.code(), ErrorCode::kFailedPrecondition) << round.what();
  EXPECT_THAT(round.message(), HasSubstr("turns::Diary::ask_by_way_of -> turns::pass_on -> "
                                         "turns::Diary::wait_at_gate"));
  // Of another object it is none, and this one is free.
  turns::gate.open();
  EXPECT_EQ(diary.call<&Diary::ask>(make()), 1);
}

TEST_P(TurnsOver, AFutureKeepsTheTurnUntilItIsDone) {
  start_with(one_at_a_time());
  const RRef<Diary> diary = make();
  const Future<int> pending = diary.async<&Diary::next_note>();
  const Future<void> behind = diary.within(300ms).async<&Diary::write>(5);
  const RpcError late = error_of([&] { behind.wait(); });
  EXPECT_EQ(late.code(), ErrorCode::kDeadlineExceeded) << late.what();
  EXPECT_FALSE(pending.done());
  abandon();
}

TEST_P(TurnsOver, OrGivesItUp) {
  start_with(one_at_a_time(OneAtATime::kGivesUpTurn));
  const RRef<Diary> diary = make();
  const Future<int> pending = diary.async<&Diary::next_note>();
  diary.call<&Diary::write>(5);
  EXPECT_EQ(pending.wait(), 5);
}

TEST_P(TurnsOver, WhoWaitsIsToldBeforeItsTimeIsOver) {
  start_with(one_at_a_time());
  const RRef<Diary> diary = make();
  const Future<int> first = diary.async<&Diary::wait_at_gate>();
  ASSERT_TRUE(turns::gate.wait_for_arrivals(1));
  RpcError late(ErrorCode::kUnknown, "");
  // Where the machine has stood still for longer than the grace, another one is asked.
  for (int i = 0; i < 5 && late.origin() != ErrorOrigin::kCallee; ++i) {
    const Future<void> before = diary.within(4s).async<&Diary::note>(1);
    const Future<void> behind = diary.within(4s).async<&Diary::note>(2);
    late = error_of([&] { behind.wait(); });
    EXPECT_EQ(late.code(), ErrorCode::kDeadlineExceeded) << late.what();
  }
  EXPECT_EQ(late.origin(), ErrorOrigin::kCallee);
  expect_not_run(late, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(late.message(), HasSubstr("calls of the same object"));
  turns::gate.open();
  EXPECT_EQ(first.wait(), 1);
  EXPECT_TRUE(diary.call<&Diary::notes>().empty());
}

TEST_P(TurnsOver, LimitsBoundWhoWaitsAndOthersAreRefused) {
  start(2, serve<Diary>(one_at_a_time().limit_calls(3)));
  const RRef<Diary> diary = make();
  const Future<int> first = diary.async<&Diary::wait_at_gate>();
  ASSERT_TRUE(turns::gate.wait_for_arrivals(1));
  const Future<int> second = diary.async<&Diary::wait_at_gate>();
  const Future<int> third = diary.async<&Diary::wait_at_gate>();
  expect_not_run(error_of([&] { diary.call<&Diary::wait_at_gate>(); }),
                 ErrorCode::kResourceExhausted);
  turns::gate.open();
  EXPECT_EQ(first.wait() + second.wait() + third.wait(), 3);
}

TEST_P(TurnsOver, WhoIsLostLosesItsPlace) {
  testing::Cluster& cluster = start(3, serve<Diary>(one_at_a_time()));
  const auto diary = std::make_shared<Diary>();
  worker(1).publish("diary", diary);
  const RRef<Diary> there = worker(0).find<Diary>("worker1/diary");
  const Future<int> first = there.async<&Diary::wait_at_gate>();
  ASSERT_TRUE(turns::gate.wait_for_arrivals(1));
  {
    const RRef<Diary> of_other = worker(2).find<Diary>("worker1/diary");
    const auto lost = of_other.async<&Diary::note>(1);
    const auto lost_too = of_other.async<&Diary::note>(2);
    EXPECT_TRUE(
        eventually([&] { return worker(1).counters().at("rpc.server_active_calls") == 3; }));
  }
  cluster.kill("worker2");
  const Future<void> stays = there.async<&Diary::note>(3);
  turns::gate.open();
  EXPECT_EQ(first.wait(), 1);
  stays.wait();
  EXPECT_EQ(diary->notes(), std::vector<int>{3});
  abandon();
}

// Any number of a class without the rule.
TEST_P(TurnsOver, WithoutTheRuleCallsRunAtOnce) {
  start_with(MethodRules());
  const RRef<Diary> diary = make();
  const Future<int> first = diary.async<&Diary::wait_at_gate>();
  const Future<int> second = diary.async<&Diary::wait_at_gate>();
  EXPECT_TRUE(turns::gate.wait_for_arrivals(2));
  turns::gate.open();
  EXPECT_EQ(first.wait() + second.wait(), 2);
}

TEST(Turns, AFreeFunctionHasNone) {
  const RpcError refused =
      error_of([] { MethodTable().add<&turns::free_function>(one_at_a_time()); });
  EXPECT_EQ(refused.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("'turns::free_function' is a free function"));
  EXPECT_THAT(error_of([] { MethodTable().restrict("sinew.optim.*", one_at_a_time()); }).message(),
              HasSubstr("no limits and no turns"));
}

}  // namespace
}  // namespace sinew
