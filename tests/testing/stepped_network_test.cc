// Nothing arrives but what the test delivers, and the same choices give the same run.

#include "sinew/testing/stepped_network.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/testing/cluster.h"
#include "sinew/testing/error_of.h"
#include "sinew/testing/eventually.h"
#include "sinew/testing/gate.h"
#include "sinew/testing/internal/processors.h"
#include "sinew/testing/internal/thread_snapshot.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/testing/store.h"

using sinew::ErrorCode;
using sinew::Execution;
using sinew::Future;
using sinew::RpcError;
using sinew::Worker;
using sinew::testing::CallKind;
using sinew::testing::calls;
using sinew::testing::Cluster;
using sinew::testing::ClusterNetwork;
using sinew::testing::ClusterOptions;
using sinew::testing::ClusterTransport;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::Failure;
using sinew::testing::Fault;
using sinew::testing::Leg;
using sinew::testing::Message;
using sinew::testing::replies;
using sinew::testing::SteppedNetwork;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testkit::bump;
using testkit::bump_by_way_of;
using testkit::Cell;
using testkit::total_at;
using namespace std::chrono_literals;

namespace {

std::vector<std::string> texts(const std::vector<Message>& messages) {
  std::vector<std::string> all;
  for (const Message& message : messages) {
    std::ostringstream text;
    text << message;
    all.push_back(text.str());
  }
  return all;
}

std::string what_fails(const std::function<void()>& what) {
  try {
    what();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "nothing failed";
}

std::unique_ptr<Cluster> stepped_cluster(ClusterTransport transport) {
  ClusterOptions options;
  options.names = {"learner", "actor", "other"};
  options.methods = testkit::methods();
  options.transport = transport;
  options.network = ClusterNetwork::kStepped;
  return std::make_unique<Cluster>(std::move(options));
}

/// A learner and two actors. A test ends with the check that nothing is left.
class Stepped : public ::testing::TestWithParam<ClusterTransport> {
 protected:
  Stepped() : cluster_(stepped_cluster(GetParam())) {}
  void TearDown() override { cluster_->shutdown(); }

  SteppedNetwork& network() { return cluster_->network(); }
  Worker learner() const { return cluster_->worker("learner"); }
  /// The learner, as another one sees it.
  sinew::Peer peer(const char* caller = "actor") const {
    return cluster_->worker(caller).peer("learner");
  }

  std::unique_ptr<Cluster> cluster_;
};
SINEW_INSTANTIATE_CLUSTER_TEST(Stepped);

// ---- One after the other.

TEST_P(Stepped, NothingArrivesByItself) {
  const Future<std::int64_t> call = peer().async<&bump>(1);
  const std::vector<Message> at_first = network().under_way();
  ASSERT_EQ(at_first.size(), 1u);
  EXPECT_EQ(at_first[0].leg, Leg::kCall);
  EXPECT_EQ(at_first[0].kind, CallKind::kCall);
  EXPECT_EQ(at_first[0].method, "testkit::bump");
  EXPECT_EQ(at_first[0].from(), "actor");
  EXPECT_EQ(at_first[0].to(), "learner");
  EXPECT_GT(at_first[0].size_bytes, 0u);
  EXPECT_LT(at_first[0].size_bytes, 1000u);
  EXPECT_EQ(total_at(learner()), 0);

  EXPECT_THAT(texts(network().step()),
              ElementsAre("call of testkit::bump from 'actor' to 'learner'"));
  EXPECT_EQ(total_at(learner()), 1);
  EXPECT_FALSE(call.done());
  const std::vector<Message> then = network().under_way();
  ASSERT_EQ(then.size(), 1u);
  EXPECT_EQ(then[0].leg, Leg::kReply);
  EXPECT_EQ(then[0].from(), "learner");
  EXPECT_EQ(then[0].to(), "actor");

  EXPECT_THAT(texts(network().step()),
              ElementsAre("reply of testkit::bump from 'learner' to 'actor'"));
  EXPECT_TRUE(call.done());
  EXPECT_EQ(call.value(), 1);
  EXPECT_THAT(network().under_way(), IsEmpty());
}

TEST_P(Stepped, TheOldestIsNextAndOfOneStepBySenderAndCall) {
  std::vector<Future<std::int64_t>> made;
  // In no order of their own: each has a thread.
  std::vector<std::thread> threads;
  for (const char* caller : {"other", "actor"}) {
    threads.emplace_back([&, caller] { peer(caller).within(60s).call<&bump>(1); });
  }
  EXPECT_THAT(texts(network().under_way()),
              ElementsAre("call of testkit::bump from 'actor' to 'learner'",
                          "call of testkit::bump from 'other' to 'learner'"));
  network().step();
  // After what is there already.
  for (int i = 0; i < 3; ++i) {
    made.push_back(cluster_->worker("actor").peer("other").async<&bump>(10 * i));
  }
  const std::vector<Message> all = network().under_way();
  EXPECT_THAT(texts(all), ElementsAre("call of testkit::bump from 'other' to 'learner'",
                                      "call of testkit::bump from 'actor' to 'other'",
                                      "call of testkit::bump from 'actor' to 'other'",
                                      "call of testkit::bump from 'actor' to 'other'",
                                      "reply of testkit::bump from 'learner' to 'actor'"));
  EXPECT_EQ(network().step(2).size(), 2u);
  EXPECT_EQ(total_at(learner()), 2);
  network().step(3);
  network().deliver_all();
  EXPECT_EQ(made[0].wait(), 0);
  EXPECT_EQ(made[1].wait(), 10);
  EXPECT_EQ(made[2].wait(), 30);
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Stepped, NestedCallsAndReferencesAreStepsTooAndOwnCallsAreNot) {
  const Future<std::int64_t> call = peer().async<&bump_by_way_of>("other", 5);
  // Its handler waits for the answer of the other one, and then for one of its own worker.
  EXPECT_THAT(texts(network().deliver_all()),
              ElementsAre("call of testkit::bump_by_way_of from 'actor' to 'learner'",
                          "call of testkit::bump from 'learner' to 'other'",
                          "reply of testkit::bump from 'other' to 'learner'",
                          "reply of testkit::bump_by_way_of from 'learner' to 'actor'"));
  EXPECT_EQ(call.value(), 10);
  EXPECT_EQ(total_at(learner()), 5);

  const auto cell = peer().remote<Cell>(7);
  const auto got = cell.async<&Cell::get>();
  network().run_until([&] { return got.done(); });
  EXPECT_EQ(got.value(), 7);
  network().deliver_all();
}

TEST_P(Stepped, ABackwardPassGoesStepByStep) {
  const at::Tensor leaf = at::ones({2}).requires_grad_(true);
  const Worker actor = cluster_->worker("actor");
  std::atomic<bool> is_done{false};
  at::Tensor gradient;
  std::thread trains([&] {
    const sinew::autograd::Context context(actor);
    const at::Tensor loss = peer().call<&testkit::twice>(leaf).sum();
    sinew::autograd::backward(context, {loss});
    gradient = sinew::autograd::gradient_of(context, leaf);
    is_done = true;
  });
  const std::vector<Message> delivered = network().run_until([&] { return is_done.load(); });
  trains.join();
  EXPECT_TRUE(gradient.equal(at::full({2}, 2.0)));
  EXPECT_TRUE(std::any_of(delivered.begin(), delivered.end(), [](const Message& message) {
    return message.kind == CallKind::kBackward;
  }));
}

// ---- The test's choice.

TEST_P(Stepped, TheTestChoosesWhatIsNext) {
  std::vector<Future<std::int64_t>> made;
  made.push_back(peer("actor").async<&bump>(1));
  made.push_back(peer("other").async<&bump>(10));
  made.push_back(peer("actor").async<&bump>(100));
  // The younger one of two of the same pair first.
  EXPECT_EQ(network().deliver(calls<&bump>().by("actor").after(1)).size(), 1u);
  network().deliver(calls<&bump>().by("other"));
  EXPECT_EQ(network().deliver(calls()).size(), 1u);
  network().deliver(network().under_way()[1]);
  EXPECT_FALSE(made[0].done());
  EXPECT_TRUE(made[1].done());
  EXPECT_EQ(network().deliver(replies().first(1)).size(), 1u);
  network().deliver_all();
  EXPECT_EQ(made[2].value(), 100);
  EXPECT_EQ(made[1].value(), 110);
  EXPECT_EQ(made[0].value(), 111);
}

TEST_P(Stepped, WhatIsDroppedIsLost) {
  const sinew::CancellationSource source;
  sinew::CallOptions options;
  options.cancellation = source.token();
  const Future<std::int64_t> first = peer().with(options).async<&bump>(1);
  EXPECT_EQ(network().drop(calls<&bump>()).size(), 1u);
  EXPECT_FALSE(first.done());
  EXPECT_EQ(total_at(learner()), 0);
  const Future<std::int64_t> second = peer().with(options).async<&bump>(1);
  network().deliver(calls<&bump>());
  network().drop(replies<&bump>());
  EXPECT_EQ(total_at(learner()), 1);
  EXPECT_FALSE(second.done());
  EXPECT_THAT(network().under_way(), IsEmpty());
  source.cancel();
  EXPECT_EQ(error_of([&] { first.wait(); }).code(), ErrorCode::kCancelled);
  EXPECT_EQ(error_of([&] { second.wait(); }).code(), ErrorCode::kCancelled);
  cluster_->wait_until_at_rest();

  // As those of faults.
  const Future<std::int64_t> third = peer().async<&bump>(1);
  network().drop(calls<&bump>());
  cluster_->faults().clear();
  network().deliver_all();
  const RpcError error = error_of([&] { third.wait(); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_EQ(error.execution(), Execution::kDidNotRun);
}

TEST_P(Stepped, FaultsHitWhatIsDelivered) {
  const Fault fails = cluster_->faults().fail(calls<&bump>().first(1));
  const Future<std::int64_t> first = peer("actor").async<&bump>(1);
  const Future<std::int64_t> second = peer("other").async<&bump>(1);
  EXPECT_EQ(network().under_way().size(), 2u);
  EXPECT_EQ(fails.hits(), 0);
  network().deliver(calls().by("other"));
  EXPECT_EQ(fails.hits(), 1);
  EXPECT_EQ(error_of([&] { second.wait(); }).code(), ErrorCode::kUnavailable);
  network().deliver(calls());
  // This answer and no other.
  cluster_->faults().fail(network().under_way().front(), ErrorCode::kDataLoss);
  network().deliver_all();
  EXPECT_EQ(error_of([&] { first.wait(); }).code(), ErrorCode::kDataLoss);
  EXPECT_EQ(total_at(learner()), 1);
}

/// In which order the answers to some calls of two workers have come.
std::string order_with(Cluster& cluster, std::uint64_t seed) {
  std::vector<Future<std::int64_t>> made;
  for (const char* caller : {"actor", "other"}) {
    for (int i = 0; i < 2; ++i) {
      made.push_back(cluster.worker(caller).peer("learner").async<&bump_by_way_of>("actor", 1));
    }
  }
  cluster.network().shuffle(seed);
  std::string order;
  for (const std::string& text : texts(cluster.network().deliver_all())) order += text + "\n";
  for (const Future<std::int64_t>& each : made) order += std::to_string(each.value()) + " ";
  return order;
}

TEST(SteppedOrders, AreThoseOfTheSeed) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    std::string once;
    for (int again = 0; again < 2; ++again) {
      const std::unique_ptr<Cluster> cluster = stepped_cluster(ClusterTransport::kInproc);
      const std::string order = order_with(*cluster, seed);
      if (again == 0) {
        once = order;
      } else {
        EXPECT_EQ(order, once);
      }
      cluster->shutdown();
    }
    orders.insert(once);
  }
  EXPECT_GE(orders.size(), 3u);
}

// ---- Rest.

TEST_P(Stepped, AHandlerThatWaitsIsAtRest) {
  const Future<void> first = peer().async<&testkit::wait_at_gate>();
  const Future<std::int64_t> second = peer().async<&bump>(1);
  network().deliver(calls());
  EXPECT_EQ(testkit::gate().arrivals(), 1);
  network().deliver(replies<&bump>());
  EXPECT_EQ(second.value(), 1);
  EXPECT_THAT(network().under_way(), IsEmpty());
  testkit::gate().open();
  network().deliver(replies<&testkit::wait_at_gate>());
  EXPECT_TRUE(first.done());
  testkit::gate().close();
}

// The pause before it repeats the call is no message.
TEST_P(Stepped, WhatWaitsForATimeComesWhenItsTimeHasCome) {
  cluster_->faults().fail(calls<&bump>().first(2));
  sinew::RetryPolicy policy;
  policy.first_pause = 50ms;
  const Future<std::int64_t> call = peer().retrying(policy).async<&bump>(1);
  const std::vector<Message> delivered = network().run_until([&] { return call.done(); });
  // A refused call's answer is no message either: it is the fault.
  EXPECT_THAT(texts(delivered), ElementsAre("call of testkit::bump from 'actor' to 'learner'",
                                            "call of testkit::bump from 'actor' to 'learner'",
                                            "call of testkit::bump from 'actor' to 'learner'",
                                            "reply of testkit::bump from 'learner' to 'actor'"));
  EXPECT_EQ(call.value(), 1);
}

TEST_P(Stepped, AThreadThatNeverSleepsIsNamed) {
  std::atomic<bool> is_busy{false};
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    pthread_setname_np(pthread_self(), "busy-one");
    is_busy = true;
    while (!stop) {
    }
  });
  // Also where something throws.
  auto end_busy = absl::MakeCleanup([&] {
    stop = true;
    busy.join();
  });
  EXPECT_TRUE(eventually([&] { return is_busy.load(); }));
  const Future<std::int64_t> call = peer().async<&bump>(1);
  const std::string failure = what_fails([&] { network().step(1, 50ms); });
  std::move(end_busy).Invoke();
  EXPECT_THAT(failure, HasSubstr("the process does not come to rest, because of its threads"));
  EXPECT_THAT(failure, HasSubstr("'busy-one'"));
  network().deliver_all();
  EXPECT_EQ(call.value(), 1);
}

// It is asleep at nearly every look, but not for long.
TEST_P(Stepped, AThreadThatNapsIsNotAtRest) {
  Future<std::int64_t> call;
  std::thread naps([&] {
    for (int i = 0; i < 50; ++i) std::this_thread::sleep_for(1ms);
    call = peer().async<&bump>(1);
  });
  EXPECT_EQ(network().under_way().size(), 1u);
  naps.join();
  network().deliver_all();
  EXPECT_EQ(call.value(), 1);
}

// It is asleep at nearly every look.
TEST(ThreadSnapshot, SeesWhoHasRunBetweenTwoLooks) {
  std::atomic<bool> stop{false};
  std::atomic<int> naps_taken{0};
  std::thread naps([&] {
    pthread_setname_np(pthread_self(), "naps");
    for (; !stop; ++naps_taken) std::this_thread::sleep_for(1ms);
  });
  auto before = sinew::internal::ThreadSnapshot::take();
  const auto sees_it_asleep = [&](auto& look) {
    return eventually([&] {
      look = sinew::internal::ThreadSnapshot::take();
      return look.all_sleep();
    });
  };
  ASSERT_TRUE(eventually([&] { return naps_taken > 0; }));
  ASSERT_TRUE(sees_it_asleep(before));
  const int then = naps_taken;
  ASSERT_TRUE(eventually([&] { return naps_taken > then + 1; }));
  auto after = before;
  ASSERT_TRUE(sees_it_asleep(after));
  EXPECT_THAT(after.awake_since(before), HasSubstr("'naps'"));
  stop = true;
  naps.join();
}

TEST(ThreadSnapshot, SeesWhoHasComeOrGoneBetweenTwoLooks) {
  sinew::testing::Gate gate;
  const auto waiting = [&](const char* name) {
    std::thread thread([&gate, name] {
      pthread_setname_np(pthread_self(), name);
      gate.pass();
    });
    EXPECT_TRUE(gate.wait_for_arrivals(1));
    return thread;
  };
  std::thread goes = waiting("goes");
  const auto before = sinew::internal::ThreadSnapshot::take();
  gate.open();
  goes.join();
  gate.close();
  std::thread comes = waiting("comes");
  const std::string awake = sinew::internal::ThreadSnapshot::take().awake_since(before);
  EXPECT_THAT(awake, HasSubstr("'goes'"));
  EXPECT_THAT(awake, HasSubstr("'comes'"));
  gate.open();
  comes.join();
}

TEST(VisitProcessors, LeavesTheThreadItsChoice) {
  const auto choice = [] {
    cpu_set_t all;
    CPU_ZERO(&all);
    EXPECT_EQ(::sched_getaffinity(0, sizeof(all), &all), 0);
    std::vector<int> numbers;
    for (int number = 0; number < CPU_SETSIZE; ++number) {
      if (CPU_ISSET(number, &all)) numbers.push_back(number);
    }
    return numbers;
  };
  const std::vector<int> before = choice();
  sinew::internal::visit_processors();
  EXPECT_EQ(choice(), before);
}

TEST_P(Stepped, SaysWhatIsUnderWayWhenItWaitsInVain) {
  const auto patience = 300ms;
  EXPECT_THAT(network().under_way(), IsEmpty());
  EXPECT_EQ(what_fails([&] { network().step(1, patience); }),
            "waited in vain until a message is under way; under way: nothing");
  const Future<std::int64_t> call = peer().async<&bump>(1);
  EXPECT_EQ(network().under_way().size(), 1u);
  EXPECT_EQ(what_fails([&] { network().deliver(replies<&bump>().by("other"), patience); }),
            "waited in vain until there are replies of testkit::bump by 'other'; under way:\n"
            "  call of testkit::bump from 'actor' to 'learner'");
  EXPECT_THAT(what_fails([&] { network().drop(calls<&bump>().at("learner").after(1), patience); }),
              HasSubstr("until there are calls of testkit::bump at 'learner', after 1;"));
  EXPECT_EQ(error_of([&] { network().step(-1); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(network().step(0), IsEmpty());
  network().deliver_all();
  EXPECT_EQ(what_fails([&] { network().run_until([] { return false; }, patience); }),
            "waited in vain until the condition of run_until() is true; under way: nothing");
  EXPECT_EQ(call.value(), 1);
}

TEST_P(Stepped, SaysWhenThereAreAlwaysMoreMessages) {
  std::atomic<bool> stop{false};
  const sinew::Peer learner_of_actor = peer();
  std::function<void()> call = [&] {
    learner_of_actor.async<&bump>(1).then([&](const Future<std::int64_t>&) {
      if (!stop) call();
    });
  };
  call();
  EXPECT_THAT(what_fails([&] { network().deliver_all(200ms); }),
              HasSubstr("there are always more messages to deliver, after "));
  stop = true;
  network().deliver_all();
}

TEST_P(Stepped, SizesAreThoseOfTheirTensors) {
  const at::Tensor tensor = at::ones({1000});
  const Future<at::Tensor> twice = peer().async<&testkit::twice>(tensor);
  const Future<std::int64_t> count = peer().async<&testkit::count_elements>(tensor);
  const std::vector<Message> delivered = network().deliver_all();
  ASSERT_EQ(delivered.size(), 4u);
  for (const Message& message : delivered) {
    SCOPED_TRACE(message);
    const bool has_tensor = message.leg == Leg::kCall || message.method == "testkit::twice";
    EXPECT_GE(message.size_bytes, has_tensor ? 4000u : 1u);
    EXPECT_LT(message.size_bytes, has_tensor ? 5000u : 1000u);
  }
  EXPECT_TRUE(twice.done());
  EXPECT_EQ(count.value(), 1000);
}

// ---- Workers that go.

TEST_P(Stepped, NothingIsUnderWayWithAWorkerThatIsGone) {
  const Future<std::int64_t> to_it = peer().async<&bump>(1);
  const Future<std::int64_t> from_it = cluster_->worker("learner").peer("other").async<&bump>(1);
  const Future<std::int64_t> apart = cluster_->worker("actor").peer("other").async<&bump>(1);
  EXPECT_EQ(network().under_way().size(), 3u);
  cluster_->kill("learner");
  EXPECT_EQ(error_of([&] { to_it.wait(); }).code(), ErrorCode::kUnavailable);
  EXPECT_THAT(texts(network().deliver(calls())),
              ElementsAre("call of testkit::bump from 'actor' to 'other'"));
  network().deliver_all();
  EXPECT_TRUE(apart.done());

  cluster_->start("learner");
  const Future<std::int64_t> again = peer().async<&bump>(1);
  network().deliver_all();
  EXPECT_EQ(again.value(), 1);

  const Future<std::int64_t> to_evicted = peer().async<&bump>(1);
  EXPECT_EQ(network().under_way().size(), 1u);
  cluster_->evict("learner");
  EXPECT_THAT(network().under_way(), IsEmpty());
  EXPECT_EQ(error_of([&] { to_evicted.wait(); }).code(), ErrorCode::kUnavailable);
  cluster_->replace("learner", cluster_->worker("learner").rejoin());
}

TEST_P(Stepped, AShutdownLetsGoOfWhatIsUnderWay) {
  const Future<std::int64_t> call = peer().async<&bump_by_way_of>("other", 1);
  network().step();
  cluster_->shutdown();
  EXPECT_EQ(call.wait(), 2);
}

TEST(SteppedCluster, IsOneByOption) {
  Cluster cluster({"learner", "actor"}, testkit::methods());
  const RpcError error = error_of([&] { cluster.network(); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(),
              HasSubstr("set ClusterOptions::network to ClusterNetwork::kStepped"));
  cluster.shutdown();
}

}  // namespace
