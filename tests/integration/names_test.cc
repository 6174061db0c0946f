// Workers and objects that are waited for by their names.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/names.pb.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/open_job_test.h"

using sinew::ErrorCode;
using sinew::Future;
using sinew::Peer;
using sinew::RpcError;
using sinew::RRef;
using sinew::WhenTaken;
using sinew::Worker;
using sinew::WorkerInfo;
using sinew::WorkerOptions;
using sinew::testing::error_of;
using sinew::testing::eventually;
using testapp::Counter;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

namespace integration {

/// A handler that waits for a worker.
std::string wait_in_handler(const std::string& name) {
  return sinew::current_worker().wait_for(name, 60s).name();
}

sinew::testing::Gate& making_gate() {
  static sinew::testing::Gate gate;
  return gate;
}
/// A value that takes its time.
int make_number(int number) {
  making_gate().pass();
  return number;
}

}  // namespace integration
SINEW_METHOD(integration::wait_in_handler, integration::make_number);

namespace {

class Names : public sinew::testing::OpenJobTest {
 protected:
  void start_open(int size) {
    sinew::MethodTable methods = testapp::methods();
    methods.add<&integration::wait_in_handler>().add<&integration::make_number>();
    OpenJobTest::start_open(size, std::move(methods));
  }
  static std::int64_t waiters(const Worker& worker) { return worker.counters()["names.waiters"]; }
  static int add(const RRef<Counter>& counter, int by) { return counter.call<&Counter::add>(by); }
  static void publish_counter(const Worker& worker, const std::string& name, int start) {
    worker.publish(name, std::make_shared<Counter>(start));
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(Names);

TEST_P(Names, AWorkerIsWaitedForUntilItComesAndComesBack) {
  start_open(2);
  EXPECT_EQ(worker(0).wait_for("worker0"), worker(0).self());
  EXPECT_EQ(worker(0).wait_for("worker1", 60s).info(), worker(1).info());
  const Future<Peer> waiting = worker(1).wait_for_async("late", 60s);
  EXPECT_FALSE(waiting.done());
  Worker late = start_late();
  const Peer first = waiting.wait();
  EXPECT_EQ(first.info(), late.info());
  EXPECT_EQ(first.call<&testapp::add>(1, 2), 3);

  late.shutdown({false});
  // Once it is known to be lost it is not returned any more.
  ASSERT_TRUE(eventually([&] { return worker(1).workers().size() == 2; }));
  const Future<Peer> again = worker(1).wait_for_async("late", 60s);
  late = start_late();
  EXPECT_EQ(again.wait().info(), late.info());
  EXPECT_FALSE(again.wait() == first);
  EXPECT_EQ(again.wait().call<&testapp::add>(1, 2), 3);
  late.shutdown();
}

TEST_P(Names, AHandlerMayWaitForAWorker) {
  start_open(2);
  const auto called = worker(0).peer("worker1").async<&integration::wait_in_handler>("late");
  const Worker late = start_late();
  EXPECT_EQ(called.wait(), "late");
  late.shutdown();
}

TEST_P(Names, AWorkerThatDoesNotComeIsAnErrorThatSaysWhatIsKnown) {
  start_open(2);
  const RpcError never = error_of([&] { worker(0).wait_for("worke1", 1ms); });
  EXPECT_EQ(never.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(never.peer(), "worke1");
  EXPECT_THAT(never.message(), HasSubstr("no worker 'worke1' was ever seen; others that are "
                                         "there: 'worker1'"));
  const Worker late = start_late();
  worker(0).wait_for("late");
  late.shutdown({false});
  ASSERT_TRUE(eventually([&] { return worker(0).workers().size() == 2; }));
  // When, and why, may be told a moment later.
  EXPECT_TRUE(eventually([&] {
    const RpcError lost = error_of([&] { worker(0).wait_for("late", 1ms); });
    EXPECT_EQ(lost.code(), ErrorCode::kDeadlineExceeded);
    return ::testing::Matches(HasSubstr("worker 'late' was lost"))(lost.message());
  }));
}

TEST_P(Names, AWaitForAWorkerEndsWithWhoWaits) {
  start_open(3);
  const Future<Peer> evicted = worker(2).wait_for_async("late", sinew::kNoTimeout);
  evict(2);
  EXPECT_EQ(error_of([&] { evicted.wait(); }).code(), ErrorCode::kAborted);
  EXPECT_EQ(error_of([&] { worker(2).wait_for("late"); }).code(), ErrorCode::kAborted);
  replace(2, worker(2).rejoin());

  const Worker late = start_late();
  const Future<Peer> ended = late.wait_for_async("never", sinew::kNoTimeout);
  late.shutdown();
  const RpcError error = error_of([&] { ended.wait(); });
  EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  EXPECT_THAT(error.message(), HasSubstr("worker 'late' was shut down"));
  EXPECT_EQ(error_of([&] { late.wait_for("worker0"); }).code(), ErrorCode::kFailedPrecondition);
}

TEST_P(Names, WrongWaitsAreRefused) {
  start_open(1);
  EXPECT_EQ(error_of([] { Worker().wait_for("a"); }).code(), ErrorCode::kFailedPrecondition);
  for (const char* name : {"", "a/b", "a b"}) {
    EXPECT_EQ(error_of([&] { worker(0).wait_for(name); }).code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(error_of([&] { worker(0).wait_for("a", 0s); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { worker(0).wait_for("a", -1s); }).code(), ErrorCode::kInvalidArgument);
}

// ---- Objects.

TEST_P(Names, APublishedObjectIsFoundByAll) {
  start_open(3);
  const auto counter = std::make_shared<Counter>(1);
  worker(1).publish("counter", sinew::share_rref(worker(1), counter));
  const RRef<Counter> found = worker(0).find<Counter>("worker1/counter", 60s);
  EXPECT_EQ(found.owner(), worker(1).info());
  EXPECT_EQ(add(found, 1), 2);
  EXPECT_EQ(add(worker(2).find_async<Counter>("worker1/counter").wait(), 1), 3);
  // Its own worker finds the object itself.
  const RRef<Counter> own = worker(1).find<Counter>("worker1/counter");
  EXPECT_TRUE(own.is_owner());
  EXPECT_EQ(own.local_shared(), counter);
  EXPECT_EQ(worker(1).counters()["names.published"], 1);
}

TEST_P(Names, AnObjectIsWaitedForAndSoIsItsWorker) {
  start_open(2);
  const auto early = worker(0).find_async<Counter>("late/counter", 60s);
  const Worker late = start_late();
  ASSERT_TRUE(eventually([&] { return waiters(late) == 1; }));
  const auto other = worker(1).find_async<Counter>("late/counter", 60s);
  ASSERT_TRUE(eventually([&] { return waiters(late) == 2; }));
  publish_counter(late, "other", 5);
  EXPECT_EQ(waiters(late), 2);
  EXPECT_FALSE(early.done());
  publish_counter(late, "counter", 10);
  EXPECT_EQ(add(early.wait(), 1), 11);
  EXPECT_EQ(add(other.wait(), 1), 12);
  EXPECT_EQ(waiters(late), 0);
  late.shutdown();
}

TEST_P(Names, WhatIsStillBeingMadeCanBePublished) {
  start_open(2);
  integration::making_gate().close();
  worker(1).publish("number", worker(1).self().remote<&integration::make_number>(7));
  const RRef<int> found = worker(0).find<int>("worker1/number", 60s);
  const Future<int> value = found.to_here_async();
  EXPECT_TRUE(integration::making_gate().wait_for_arrivals(1));
  EXPECT_FALSE(value.done());
  integration::making_gate().open();
  EXPECT_EQ(value.wait(), 7);
}

TEST_P(Names, AFindOutlivesTheWorkersThatItWaitsAt) {
  start_open(2);
  Worker late = start_late();
  const auto found = worker(0).find_async<Counter>("late/counter", 60s);
  ASSERT_TRUE(eventually([&] { return waiters(late) == 1; }));
  late.shutdown({false});
  late = start_late();
  ASSERT_TRUE(eventually([&] { return waiters(late) == 1; }));
  // One that leaves with grace is not held up by those who wait.
  late.shutdown();
  late = start_late();
  publish_counter(late, "counter", 20);
  const RRef<Counter> counter = found.wait();
  EXPECT_EQ(counter.owner(), late.info());
  EXPECT_EQ(add(counter, 1), 21);
  late.shutdown({false});
  // A reference is to one incarnation, whoever has the name.
  late = start_late();
  publish_counter(late, "counter", 30);
  EXPECT_EQ(add(worker(0).find<Counter>("late/counter", 60s), 1), 31);
  EXPECT_EQ(error_of([&] { add(counter, 1); }).code(), ErrorCode::kUnavailable);
  late.shutdown();
}

TEST_P(Names, ANameIsTakenUntilItIsTakenBack) {
  start_open(2);
  publish_counter(worker(1), "counter", 1);
  const RpcError taken = error_of([&] { publish_counter(worker(1), "counter", 2); });
  EXPECT_EQ(taken.code(), ErrorCode::kAlreadyExists);
  EXPECT_THAT(taken.message(), HasSubstr("'counter' is published already, as a testapp::Counter"));
  const RRef<Counter> first = worker(0).find<Counter>("worker1/counter");
  worker(1).publish("counter", std::make_shared<Counter>(100), WhenTaken::kReplace);
  EXPECT_EQ(add(worker(0).find<Counter>("worker1/counter"), 1), 101);
  EXPECT_EQ(add(first, 1), 2) << "what was found stays";
  EXPECT_TRUE(worker(1).unpublish("counter"));
  EXPECT_FALSE(worker(1).unpublish("counter"));
  EXPECT_EQ(error_of([&] { worker(0).find<Counter>("worker1/counter", 1ms); }).code(),
            ErrorCode::kDeadlineExceeded);
  publish_counter(worker(1), "counter", 1000);
  EXPECT_EQ(add(worker(0).find<Counter>("worker1/counter"), 1), 1001);
}

TEST_P(Names, ANameKeepsItsObjectAlive) {
  start_open(2);
  auto counter = std::make_shared<Counter>(1);
  const std::weak_ptr<Counter> watched = counter;
  worker(1).publish("counter", std::move(counter));
  EXPECT_EQ(add(worker(0).find<Counter>("worker1/counter"), 1), 2);
  EXPECT_FALSE(watched.expired());
  RRef<Counter> found = worker(0).find<Counter>("worker1/counter");
  EXPECT_TRUE(worker(1).unpublish("counter"));
  EXPECT_EQ(add(found, 1), 3);
  found = {};
  EXPECT_TRUE(eventually([&] { return watched.expired(); }));
}

TEST_P(Names, ErrorsSayWhatIsMissing) {
  start_open(2);
  const auto find = [&](const std::string& address) {
    return error_of([&] { worker(0).find<Counter>(address, 50ms); });
  };
  const RpcError nobody = find("worke1/counter");
  EXPECT_EQ(nobody.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(nobody.message(), HasSubstr("'worke1/counter' was not found: waited"));
  EXPECT_THAT(nobody.message(), HasSubstr("no worker 'worke1' was ever seen"));
  // The machine may be too busy for an answer within 50 ms.
  const auto says = [&](const std::string& address, const std::string& text) {
    return eventually([&] {
      const RpcError error = find(address);
      EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
      return ::testing::Matches(HasSubstr(text))(error.message());
    });
  };
  EXPECT_TRUE(says("worker1/counter", "worker 'worker1' is there, but has published nothing"));
  publish_counter(worker(1), "counter2", 1);
  EXPECT_TRUE(says("worker1/counter",
                   "worker 'worker1' is there, but has published no 'counter'; it has 'counter2'"));
  EXPECT_TRUE(eventually([&] { return waiters(worker(1)) == 0; }));

  // At once, whatever the deadline.
  const RpcError type =
      error_of([&] { worker(0).find<int>("worker1/counter2", sinew::kNoTimeout); });
  EXPECT_EQ(type.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(type.message(), HasSubstr("is a testapp::Counter, but was sought as a int"));
}

TEST_P(Names, AFindEndsWithWhoSeeks) {
  start_open(3);
  const auto absent = worker(2).find_async<Counter>("late/counter", sinew::kNoTimeout);
  const auto held = worker(2).find_async<Counter>("worker0/counter", sinew::kNoTimeout);
  ASSERT_TRUE(eventually([&] { return waiters(worker(0)) == 1; }));
  evict(2);
  for (const auto& future : {absent, held}) {
    EXPECT_EQ(error_of([&] { future.wait(); }).code(), ErrorCode::kAborted);
  }
  EXPECT_EQ(error_of([&] { worker(2).find<Counter>("worker0/counter"); }).code(),
            ErrorCode::kAborted);
  EXPECT_EQ(error_of([&] { publish_counter(worker(2), "counter", 1); }).code(),
            ErrorCode::kAborted);
  EXPECT_TRUE(eventually([&] { return waiters(worker(0)) == 0; }));
  replace(2, worker(2).rejoin());

  const Worker late = start_late();
  const auto ended = late.find_async<Counter>("worker0/counter", sinew::kNoTimeout);
  ASSERT_TRUE(eventually([&] { return waiters(worker(0)) == 1; }));
  late.shutdown();
  EXPECT_EQ(error_of([&] { ended.wait(); }).code(), ErrorCode::kCancelled);
  EXPECT_TRUE(eventually([&] { return waiters(worker(0)) == 0; }));
  EXPECT_EQ(error_of([&] { late.find<Counter>("worker0/counter"); }).code(),
            ErrorCode::kFailedPrecondition);
  EXPECT_EQ(error_of([&] { publish_counter(late, "counter", 1); }).code(),
            ErrorCode::kFailedPrecondition);
  EXPECT_FALSE(late.unpublish("counter"));
}

TEST_P(Names, AnEvictedWorkersNamesGoWithItUntilItPublishesAgain) {
  start_open(3);
  publish_counter(worker(2), "counter", 1);
  const RRef<Counter> old = worker(0).find<Counter>("worker2/counter");
  const WorkerInfo before = worker(2).info();
  evict(2);
  replace(2, worker(2).rejoin());
  const auto found = worker(0).find_async<Counter>("worker2/counter", 60s);
  ASSERT_TRUE(eventually([&] { return waiters(worker(2)) == 1; }));
  publish_counter(worker(2), "counter", 10);
  EXPECT_NE(found.wait().owner(), before);
  EXPECT_EQ(add(found.wait(), 1), 11);
  EXPECT_EQ(error_of([&] { add(old, 1); }).code(), ErrorCode::kUnavailable);
}

TEST_P(Names, WrongPublicationsAndAddressesAreRefused) {
  start_open(2);
  const auto code_of = [](const std::function<void()>& use) { return error_of(use).code(); };
  const RRef<Counter> elsewhere = worker(0).peer(1).remote<Counter>(1);
  const RpcError refused = error_of([&] { worker(0).publish("counter", elsewhere); });
  EXPECT_EQ(refused.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("is a value of worker 'worker1'"));
  // Also where both workers are in this process.
  EXPECT_EQ(code_of([&] { worker(0).publish("a", sinew::make_rref(worker(1), 1)); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { worker(0).publish("a", RRef<int>()); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { worker(0).publish("a", std::shared_ptr<int>()); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Worker().publish("a", std::make_shared<int>(1)); }),
            ErrorCode::kFailedPrecondition);
  for (const char* name : {"", "a/b", "a b"}) {
    EXPECT_EQ(code_of([&] { publish_counter(worker(0), name, 1); }), ErrorCode::kInvalidArgument);
  }
  for (const char* address : {"", "counter", "/counter", "worker1/", "a/b/c", "worker 1/counter"}) {
    EXPECT_EQ(code_of([&] { worker(0).find<Counter>(address); }), ErrorCode::kInvalidArgument)
        << address;
  }
  EXPECT_EQ(code_of([&] { worker(0).find<Counter>("worker1/counter", 0s); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(worker(0).counters()["names.published"], 0);
}

// What a member says that is not Sinew.
TEST_P(Names, QuestionsAreHostileUntilTheyAreChecked) {
  start_open(2);
  const auto services = sinew::WorkerAccess::services(worker(0));
  const auto ask = [&](std::string body) {
    return services->control_call(worker(1).info(), "sinew.names.wait", std::move(body), 60s);
  };
  const auto code_of = [](const Future<std::string>& answer) {
    return error_of([&] { answer.wait(); }).code();
  };
  EXPECT_EQ(code_of(ask("\xff\xff")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(ask("")), ErrorCode::kInvalidArgument);
  sinew::proto::NameQuery query;
  query.set_name(std::string(100000, 'a'));
  EXPECT_EQ(code_of(ask(query.SerializeAsString())), ErrorCode::kInvalidArgument);
  query.set_name("counter");
  query.set_hold_us(std::numeric_limits<std::uint64_t>::max());
  std::vector<Future<std::string>> held;
  for (int i = 0; i < 1024; ++i) held.push_back(ask(query.SerializeAsString()));
  ASSERT_TRUE(eventually([&] { return waiters(worker(1)) == 1024; }));
  EXPECT_EQ(code_of(ask(query.SerializeAsString())), ErrorCode::kResourceExhausted);
  EXPECT_EQ(error_of([&] { worker(0).find<Counter>("worker1/counter"); }).code(),
            ErrorCode::kResourceExhausted);
  publish_counter(worker(1), "counter", 1);
  for (const auto& answer : held) EXPECT_NO_THROW(answer.wait());
}

}  // namespace
