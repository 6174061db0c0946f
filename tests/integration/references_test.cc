// References between the workers of one process, over each transport. The fixture's end checks
// after each test that every table is empty again.

#include <ATen/Functions.h>

#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "sinew/rpc.grpc.pb.h"
#include "sinew/rpc/calls/call_builder.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rref.pb.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/reference_messages.h"

using sinew::CallOptions;
using sinew::ErrorCode;
using sinew::RpcError;
using sinew::RRef;
using sinew::Worker;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::ids_of;
using testapp::Counter;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

namespace integration {

std::atomic<int> numbers_made{0};

sinew::testing::Gate& creation_gate() {
  static sinew::testing::Gate gate;
  return gate;
}

int slow_number(int number) {
  creation_gate().pass();
  ++numbers_made;
  return number;
}
int fetch_number(const RRef<int>& number) { return number.to_here(); }
int sum_numbers(const std::vector<std::vector<RRef<int>>>& numbers) {
  int sum = 0;
  for (const auto& row : numbers) {
    for (const RRef<int>& number : row) sum += number.to_here();
  }
  return sum;
}
RRef<at::Tensor> own_tensor() { return sinew::make_rref(sinew::current_worker(), at::ones({4})); }
std::string failing(int) { throw std::out_of_range("nothing there today"); }

}  // namespace integration
SINEW_METHOD(integration::slow_number, integration::fetch_number, integration::sum_numbers,
             integration::own_tensor, integration::failing);

namespace {

std::int64_t count_of(const Worker& worker, const std::string& name) {
  return worker.counters()[name];
}

/// What is in its tables.
sinew::Counters references_of(const Worker& worker) {
  sinew::Counters found;
  for (const auto& [name, count] : worker.counters()) {
    if (name.rfind("rref.", 0) == 0 && count != 0) found[name] = count;
  }
  return found;
}

class References : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    integration::creation_gate().close();
    integration::numbers_made = 0;
  }
  void start_all(int size = 3, std::function<void(int, sinew::WorkerOptions&)> tweak = nullptr) {
    sinew::MethodTable table = testapp::methods();
    table.add<&integration::slow_number>().add<&integration::fetch_number>();
    table.add<&integration::sum_numbers>()
        .add<&integration::own_tensor>()
        .add<&integration::failing>();
    start(size, std::move(table), std::move(tweak));
  }
  /// Ends the others gracefully. What a worker held that ended without grace stays in its own
  /// table, at which nobody looks.
  void finish_without(int ended) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == ended) continue;
      threads.emplace_back([this, rank] {
        EXPECT_NO_THROW(worker(rank).shutdown({/*graceful=*/true, 60s, /*fail_on_leaks=*/true}));
        EXPECT_THAT(references_of(worker(rank)), IsEmpty()) << worker(rank).name();
      });
    }
    for (std::thread& thread : threads) thread.join();
    abandon();
  }
  void expect_empty_tables() {
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EVENTUALLY(references_of(worker(rank)), IsEmpty()) << worker(rank).name();
    }
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(References);

// ---- R6: the four ways of sharing.

TEST_P(References, UserToOwnerGivesTheOwnerItsOwnValue) {
  start_all();
  const auto counter = worker(0).peer(1).remote<Counter>(10);
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add_to>(counter, 1), 11);
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add_to_all>(std::vector<RRef<Counter>>(3, counter), 1),
            12 + 13 + 14);
  worker(0).peer(1).call<&testapp::keep>("mine", counter);
  EXPECT_EQ(count_of(worker(1), "rref.users"), 0);
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add_to_kept>("mine", 1), 15);
  worker(0).peer(1).call<&testapp::drop>("mine");
}

TEST_P(References, OwnerToUserInArgumentAndResult) {
  start_all();
  const auto own = sinew::share_rref(worker(0), std::make_shared<Counter>(1));
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add_to>(own, 2), 3);
  auto made = worker(0).peer(1).call<&testapp::make_counters>("worker1", 3);
  ASSERT_EQ(made.size(), 3u);
  EXPECT_FALSE(made["2"].is_owner());
  EXPECT_EQ(made["2"].owner_name(), "worker1");
  EXPECT_EQ(made["2"].call<&Counter::add>(5), 7);
}

TEST_P(References, UserToUserInArgumentAndResult) {
  start_all();
  const auto counter = worker(0).peer(1).remote<Counter>(10);
  EXPECT_EQ(worker(0).peer(2).call<&testapp::add_to>(counter, 1), 11);
  EXPECT_EQ(worker(0).peer(2).call<&testapp::add_through>("worker1", counter, 1), 12);
  EXPECT_EQ(worker(0).peer(2).call<&testapp::add_through>("worker0", counter, 1), 13);
  const auto echoed = worker(0).peer(2).call<&testapp::same>(counter);
  EXPECT_EQ(echoed.owner(), counter.owner());
  EXPECT_EQ(echoed.call<&Counter::add>(1), 14);
  auto made = worker(0).peer(2).call<&testapp::make_counters>("worker1", 20);
  ASSERT_EQ(made.size(), 20u);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(made[std::to_string(i)].owner_name(), "worker1");
    EXPECT_EQ(made[std::to_string(i)].call<&Counter::add>(1), i + 1);
  }
}

TEST_P(References, OwnValueComesBackAsItself) {
  start_all();
  const auto own = sinew::share_rref(worker(0), std::make_shared<Counter>(1));
  const auto back = worker(0).peer(1).call<&testapp::same>(own);
  EXPECT_TRUE(back.is_owner());
  EXPECT_EQ(&back.local_value(), &own.local_value());
  // What a third worker makes here comes back as one's own value, too.
  auto made = worker(0).peer(1).call<&testapp::make_counters>("worker0", 2);
  EXPECT_TRUE(made["1"].is_owner());
  EXPECT_EQ(made["1"].local_value().get(), 1);
}

TEST_P(References, NestedContainersAndStress) {
  start_all();
  std::vector<std::vector<RRef<int>>> rows;
  for (int row = 0; row < 4; ++row) {
    std::vector<RRef<int>>& numbers = rows.emplace_back();
    for (int i = 0; i < 5; ++i)
      numbers.push_back(worker(0).peer(i % 3).remote<&testapp::add>(row, i));
  }
  std::vector<sinew::Future<int>> sums;
  for (int i = 0; i < 20; ++i)
    sums.push_back(worker(0).peer(1 + i % 2).async<&integration::sum_numbers>(rows));
  for (int sum : sinew::wait_all(std::move(sums))) EXPECT_EQ(sum, 70);
}

TEST_P(References, TenOutstandingCreations) {
  start_all();
  std::vector<RRef<int>> numbers;
  for (int i = 0; i < 10; ++i) numbers.push_back(worker(0).peer(1).remote<&testapp::add>(i, i));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(numbers[static_cast<std::size_t>(i)].to_here(), 2 * i);
}

TEST_P(References, HoldersMayGoInAnyOrder) {
  start_all();
  auto counter = std::make_optional(worker(0).peer(1).remote<Counter>(0));
  worker(0).peer(2).call<&testapp::keep>("a", *counter);
  counter.reset();
  EXPECT_EQ(worker(0).peer(2).call<&testapp::add_to_kept>("a", 1), 1);
  {
    const auto again = worker(0).peer(2).call<&testapp::kept>("a");
    worker(0).peer(2).call<&testapp::drop>("a");
    EXPECT_EQ(again.call<&Counter::add>(1), 2);
    EXPECT_EQ(count_of(worker(1), "rref.owned"), 1);
  }
  expect_empty_tables();
}

TEST_P(References, ManyThreadsCopyPassAndDrop) {
  start_all();
  const auto counter = worker(0).peer(1).remote<Counter>(0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const RRef<Counter> copy = counter;
        EXPECT_GT(worker(0).peer((t + i) % 3).call<&testapp::add_to>(copy, 1), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.call<&Counter::get>(), 100);
}

// ---- Confirmation and counters.

TEST_P(References, AreConfirmedInsideHandlers) {
  start_all();
  const auto counter = worker(0).peer(1).remote<Counter>(0);
  for (int i = 0; i < 10; ++i) {
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(worker(0).peer(rank).call<&testapp::confirmed>(counter)) << "at rank " << rank;
    }
  }
  const auto own = sinew::share_rref(worker(0), std::make_shared<Counter>(1));
  EXPECT_TRUE(worker(0).peer(2).call<&testapp::confirmed>(own));
  EXPECT_TRUE(own.confirmed_by_owner());
  EXPECT_TRUE(eventually([&] { return counter.confirmed_by_owner(); }));
}

TEST_P(References, LocalValueEntersTheTableOnlyWhenShared) {
  start_all();
  {
    const auto own = sinew::share_rref(worker(0), std::make_shared<Counter>(1));
    EXPECT_EQ(own.local_value().get(), 1);
    EXPECT_EQ(count_of(worker(0), "rref.owned"), 0);
    worker(0).peer(1).call<&testapp::keep>("it", own);
    EXPECT_EQ(count_of(worker(0), "rref.owned"), 1);
    EXPECT_EQ(count_of(worker(0), "rref.forks"), 1);
    EXPECT_EQ(count_of(worker(1), "rref.users"), 1);
    worker(0).peer(1).call<&testapp::drop>("it");
    EXPECT_TRUE(eventually([&] { return count_of(worker(0), "rref.forks") == 0; }));
  }
  EXPECT_TRUE(eventually([&] { return count_of(worker(0), "rref.owned") == 0; }));
}

TEST_P(References, CountersCountAndReturnToZero) {
  start_all();
  {
    const auto one = worker(0).peer(1).remote<Counter>(1);
    const auto two = worker(0).peer(1).remote<Counter>(2);
    one.created().wait();
    two.created().wait();
    EXPECT_EQ(count_of(worker(1), "rref.owned"), 2);
    EXPECT_EQ(count_of(worker(1), "rref.forks"), 2);
    EXPECT_EQ(count_of(worker(0), "rref.users"), 2);
    EXPECT_EQ(count_of(worker(0), "rref.pending_users"), 0);
    worker(0).peer(2).call<&testapp::keep>("one", one);
    EXPECT_TRUE(eventually([&] { return count_of(worker(0), "rref.pending_children") == 0; }));
    EXPECT_EQ(count_of(worker(1), "rref.forks"), 3);
    worker(0).peer(2).call<&testapp::drop>("one");
  }
  expect_empty_tables();
}

// ---- R5: creation.

TEST_P(References, CreationAtWorkCanBePassedOn) {
  start_all();
  for (const int maker : {0, 1}) {
    integration::creation_gate().close();
    const auto number = worker(0).peer(maker).remote<&integration::slow_number>(7);
    std::vector<sinew::Future<int>> fetched;
    for (int rank = 0; rank < 3; ++rank)
      fetched.push_back(worker(0).peer(rank).async<&integration::fetch_number>(number));
    const auto kept = worker(0).peer(2).remote<&integration::fetch_number>(number);
    const auto at_home = worker(0).self().remote<&integration::fetch_number>(number);
    EXPECT_TRUE(integration::creation_gate().wait_for_arrivals(1));
    EXPECT_FALSE(number.created().done());
    integration::creation_gate().open();
    for (int value : sinew::wait_all(std::move(fetched))) EXPECT_EQ(value, 7);
    EXPECT_EQ(kept.to_here(), 7);
    EXPECT_EQ(at_home.to_here(), 7);
  }
}

TEST_P(References, FailedCreationIsTheErrorOfEveryUse) {
  start_all();
  for (const int maker : {0, 1}) {
    const auto failed = worker(0).peer(maker).remote<&integration::failing>(1);
    EXPECT_THROW(failed.created().wait(), RpcError);
    for (int i = 0; i < 2; ++i) {
      const RpcError error = error_of([&] { failed.to_here(); });
      EXPECT_EQ(error.code(), ErrorCode::kOutOfRange);
      EXPECT_EQ(error.type_name(), "std::out_of_range");
      EXPECT_EQ(error.remote_message(), "nothing there today");
    }
    const RpcError error =
        error_of([&] { worker(0).peer(2).call<&testapp::echo>(failed.to_here()); });
    EXPECT_EQ(error.type_name(), "std::out_of_range");
  }
  expect_empty_tables();
}

TEST_P(References, FailedObjectFailsItsMethodsAndCannotBePassedOn) {
  start_all();
  const auto broken =
      worker(0).peer(1).with({std::chrono::nanoseconds(1us), {}}).remote<Counter>(1);
  // Either the creation was too late, or it was in time after all on a quick machine.
  try {
    broken.created().wait();
  } catch (const RpcError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_EQ(error_of([&] { broken.call<&Counter::get>(); }).code(), ErrorCode::kDeadlineExceeded);
    EXPECT_EQ(error_of([&] { worker(0).peer(2).call<&testapp::keep>("x", broken); }).code(),
              ErrorCode::kDeadlineExceeded);
  }
}

TEST_P(References, CreationThatTimesOutIsCleanedUpWhenItEnds) {
  start_all();
  {
    const auto number = worker(0).peer(1).with({3s, {}}).remote<&integration::slow_number>(7);
    EXPECT_TRUE(integration::creation_gate().wait_for_arrivals(1));
    EXPECT_EQ(error_of([&] { number.created().wait(); }).code(), ErrorCode::kDeadlineExceeded);
    EXPECT_EQ(error_of([&] { number.to_here(); }).code(), ErrorCode::kDeadlineExceeded);
    EXPECT_EQ(error_of([&] { worker(0).peer(2).call<&integration::fetch_number>(number); }).code(),
              ErrorCode::kDeadlineExceeded);
  }
  integration::creation_gate().open();
  EXPECT_TRUE(eventually([] { return integration::numbers_made == 1; }));
  expect_empty_tables();
}

TEST_P(References, HandleDroppedWhileItsValueIsMade) {
  start_all();
  worker(0).peer(1).remote<&integration::slow_number>(7);
  EXPECT_TRUE(integration::creation_gate().wait_for_arrivals(1));
  integration::creation_gate().open();
  expect_empty_tables();
}

// ---- At home.

TEST_P(References, CopiesAliasTheValueAtItsOwner) {
  start_all();
  const auto own = sinew::make_rref(worker(0), at::zeros({3}));
  const RRef<at::Tensor> copy = own;
  at::Tensor fetched = copy.to_here();
  EXPECT_EQ(fetched.data_ptr(), own.local_value().data_ptr());
  fetched.add_(1);
  EXPECT_EQ(own.local_value().sum().item<float>(), 3);
  // So do those that another worker made here, and those of a call to oneself.
  const auto sum = worker(0).self().remote<&testapp::add>(1, 2);
  EXPECT_EQ(sum.to_here(), 3);
  EXPECT_EQ(&sum.local_value(), &RRef<int>(sum).local_value());
  // Elsewhere it is a copy.
  const auto remote_tensor = worker(0).peer(1).call<&integration::own_tensor>();
  remote_tensor.to_here().add_(5);
  EXPECT_EQ(remote_tensor.to_here().sum().item<float>(), 4);
}

TEST_P(References, LocalValueElsewhereSaysWhoIsWho) {
  start_all();
  const auto counter = worker(0).peer(1).remote<Counter>(1);
  const RpcError error = error_of([&] { counter.local_value(); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("worker 'worker1', this is worker 'worker0'"));
  EXPECT_THAT(error.message(), HasSubstr("UserRRef(reference "));
  EXPECT_THAT(error.message(), HasSubstr("fork "));
  EXPECT_THAT(error.message(), HasSubstr("testapp::Counter"));
  EXPECT_THAT(counter.to_string(), HasSubstr("UserRRef("));
  EXPECT_THAT(sinew::make_rref(worker(0), 1).to_string(), HasSubstr("OwnerRRef("));
  EXPECT_EQ(counter.owner(), worker(1).info());
  EXPECT_EQ(RRef<int>().to_string(), "RRef()");
  EXPECT_EQ(error_of([&] { RRef<int>().to_here(); }).code(), ErrorCode::kFailedPrecondition);
}

TEST_P(References, AnObjectSharesItsLifeWithTheProgram) {
  start_all();
  const auto object = std::make_shared<Counter>(5);
  {
    const auto own = sinew::share_rref(worker(0), object);
    EXPECT_EQ(own.local_shared().get(), object.get());
    EXPECT_EQ(worker(0).peer(1).call<&testapp::add_to>(own, 1), 6);
  }
  EXPECT_TRUE(eventually([&] { return object.use_count() == 1; }));
  EXPECT_EQ(object->get(), 6);
}

// ---- R8, as far as references go.

TEST_P(References, NoneAreMadeAtAWorkerThatWasShutDown) {
  start_all(2);
  const Worker ended = worker(0);
  finish();
  for (const auto& make : std::vector<std::function<void()>>{
           [&] { sinew::make_rref(ended, 1); },
           [&] { sinew::share_rref(ended, std::make_shared<Counter>(0)); }}) {
    const RpcError error = error_of(make);
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_EQ(error.message(),
              "worker 'worker0' was shut down: no reference can be made there any more");
  }
  EXPECT_EQ(error_of([] { sinew::make_rref(Worker(), 1); }).code(), ErrorCode::kFailedPrecondition);
}

TEST_P(References, UseAfterShutdownSaysThatTheyWereDeleted) {
  start_all();
  const auto counter = worker(0).peer(1).remote<Counter>(1);
  counter.created().wait();
  const Worker first = worker(0);
  finish();
  EXPECT_THAT(error_of([&] { counter.call<&Counter::get>(); }).message(), HasSubstr("deleted"));
  EXPECT_THAT(
      error_of([&] { first.peer(first.self()).call<&testapp::keep>("x", counter); }).message(),
      ::testing::AnyOf(HasSubstr("deleted"), HasSubstr("shut down")));
}

TEST_P(References, HeldByTheProgramAtGracefulShutdownAreGivenUp) {
  start_all();
  // Kept by the state of worker 2, which nobody drops: as a cycle would.
  const auto counter = worker(0).peer(1).remote<Counter>(1);
  worker(0).peer(2).call<&testapp::keep>("for ever", counter);
  finish();
}

// ---- R7.

TEST_P(References, OwnerThatEndsIsLostForEver) {
  start_all();
  const auto counter = worker(0).peer(1).remote<Counter>(1);
  counter.created().wait();
  worker(0).peer(2).call<&testapp::keep>("it", counter);
  worker(1).shutdown({/*graceful=*/false, 60s, false});
  const sinew::Peer owner = worker(0).peer(worker(1).info());
  EXPECT_TRUE(eventually([&] { return !owner.alive(); }));
  // One death has one text.
  const RpcError of_call = error_of([&] { owner.call<&testapp::add>(1, 2); });
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { counter.call<&Counter::get>(); }, [&] { counter.async<&Counter::get>().wait(); },
           [&] { counter.remote<&Counter::get>().to_here(); },
           [&] { owner.remote<Counter>(1).created().wait(); },
           [&] { counter.peer().call<&testapp::add>(1, 2); },
           [&] { worker(0).peer(2).call<&testapp::add_to>(counter, 1); }}) {
    const RpcError error = error_of(use);
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_EQ(error.execution(), sinew::Execution::kDidNotRun) << error.what();
    EXPECT_THAT(error.message(), HasSubstr(of_call.message()));
    EXPECT_EQ(error.peer(), "worker1") << error.what();
  }
  EXPECT_EQ(error_of([&] { worker(0).peer(2).call<&testapp::add_to_kept>("it", 1); }).code(),
            ErrorCode::kUnavailable);
  EXPECT_EQ(error_of([&] { worker(0).peer(2).call<&testapp::add_to>(counter, 1); }).code(),
            ErrorCode::kUnavailable);
  worker(0).peer(2).call<&testapp::drop>("it");
  finish_without(1);
}

TEST_P(References, HolderThatEndsIsForgotten) {
  start_all();
  auto own = sinew::share_rref(worker(0), std::make_shared<Counter>(1));
  worker(0).peer(1).call<&testapp::keep>("it", own);
  worker(0).peer(2).call<&testapp::keep>("it", own);
  EXPECT_EQ(count_of(worker(0), "rref.forks"), 2);
  worker(2).shutdown({/*graceful=*/false, 60s, false});
  EXPECT_TRUE(eventually([&] { return count_of(worker(0), "rref.forks") == 1; }));
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add_to_kept>("it", 1), 2);
  worker(0).peer(1).call<&testapp::drop>("it");
  testapp::state_of(worker(2)).kept.clear();
  own = RRef<Counter>();
  finish_without(2);
}

// Its list of members may be behind, or ahead of, that of who passes the reference.
TEST_P(References, ArgumentWhoseOwnerIsNotInTheListFailsAsIfTheOwnerWereGone) {
  start_all();
  const auto counter = worker(0).peer(1).remote<Counter>(1);
  counter.created().wait();
  sinew::internal::CallBuilder call(worker(0).peer(2), "testapp::confirmed", "");
  sinew::proto::Reference& passed = call.argument().reference();
  passed = ids_of(counter);
  passed.mutable_owner()->set_name("worker1");
  passed.mutable_owner()->set_incarnation(worker(1).info().incarnation.value + 1);
  const RpcError error = error_of([&] { sinew::internal::send_for<bool>(call).wait(); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
  EXPECT_THAT(error.what(), HasSubstr("argument 1: the owner of the reference, worker 'worker1', "
                                      "is not in the job as worker 'worker2' sees it"));
}

TEST_P(References, CreateOnADeadPeerFailsAndLeavesNothing) {
  start_all();
  const sinew::Peer peer = worker(0).peer(1);
  worker(1).shutdown({/*graceful=*/false, 60s, false});
  for (int i = 0; i < 2; ++i) {
    // Before and after the loss was noticed.
    try {
      const auto number = peer.remote<&testapp::add>(1, 2);
      EXPECT_EQ(error_of([&] { number.created().wait(); }).code(), ErrorCode::kUnavailable);
      EXPECT_EQ(error_of([&] { number.to_here(); }).code(), ErrorCode::kUnavailable);
      EXPECT_EQ(
          error_of([&] { worker(0).peer(2).call<&integration::fetch_number>(number); }).code(),
          ErrorCode::kUnavailable);
    } catch (const RpcError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    }
    EXPECT_TRUE(eventually([&] { return !peer.alive(); }));
  }
  EXPECT_TRUE(eventually([&] { return count_of(worker(0), "rpc.client_active_calls") == 0; }));
  EXPECT_EVENTUALLY(references_of(worker(0)), IsEmpty());
  finish_without(1);
}

// ---- R4: whoever does not hold a fork can do nothing with it.

TEST_P(References, StolenIdsAreRefusedAndTheValueIsUnharmed) {
  start_all();
  const auto counter = worker(0).peer(1).remote<Counter>(1);
  counter.created().wait();
  const sinew::proto::Reference stolen = ids_of(counter);
  const auto use_as = [&](int rank, const sinew::proto::Reference& ids) {
    const sinew::Peer owner = worker(rank).peer(1);
    sinew::internal::CallBuilder call(owner, "testapp::Counter::add", "");
    call.target() = ids;
    sinew::internal::write_arguments(call, sinew::internal::TypeList<int>(), 100);
    return sinew::internal::send_for<int>(call);
  };
  // Even with the secret parts, which no other worker can know.
  EXPECT_EQ(error_of([&] { use_as(2, stolen).wait(); }).code(), ErrorCode::kPermissionDenied);
  sinew::proto::Reference guessed = stolen;
  guessed.mutable_fork()->set_secret(guessed.fork().secret() + 1);
  EXPECT_NE(error_of([&] { use_as(0, guessed).wait(); }).code(), ErrorCode::kOk);
  guessed = stolen;
  guessed.mutable_rref()->set_secret(guessed.rref().secret() + 1);
  EXPECT_NE(error_of([&] { use_as(0, guessed).wait(); }).code(), ErrorCode::kOk);
  guessed = stolen;
  guessed.clear_fork();
  EXPECT_NE(error_of([&] { use_as(0, guessed).wait(); }).code(), ErrorCode::kOk);
  EXPECT_EQ(use_as(0, stolen).wait(), 101);

  sinew::proto::LedgerNote note;
  sinew::proto::LedgerMessage& message = *note.add_messages();
  *message.mutable_delete_fork()->mutable_rref() = stolen.rref();
  *message.mutable_delete_fork()->mutable_fork() = stolen.fork();
  const std::string body = note.SerializeAsString();
  sinew::WorkerAccess::core(worker(2))->send_note(worker(1).info(), "rref", body);
  sinew::WorkerAccess::core(worker(2))->send_note(worker(1).info(), "rref", "not a message at all");
  // Control work of one sender is done in order, so these come after it.
  std::thread other([&] { worker(1).barrier({"worker1", "worker2"}, 60s); });
  worker(2).barrier({"worker1", "worker2"}, 60s);
  other.join();
  EXPECT_EQ(count_of(worker(1), "rref.forks"), 1);
  EXPECT_EQ(counter.call<&Counter::get>(), 101);
}

TEST_P(References, AForeignClientMayNotUseThem) {
  start_all();
  const auto counter = worker(0).peer(1).remote<Counter>(1);
  counter.created().wait();
  if (GetParam() == sinew::testing::ClusterTransport::kGrpc) {
    const auto ask = [&](const std::function<void(sinew::proto::Call&)>& change) {
      const auto stub = sinew::proto::Worker::NewStub(
          grpc::CreateChannel(worker(1).address(), grpc::InsecureChannelCredentials()));
      sinew::proto::CallRequest request;
      change(*request.mutable_call());
      sinew::proto::CallResponse response;
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + 60s);
      return stub->Call(&context, request, &response).error_code();
    };
    EXPECT_EQ(ask([&](sinew::proto::Call& call) {
                call.set_method("testapp::Counter::get");
                *call.mutable_target() = ids_of(counter);
              }),
              grpc::PERMISSION_DENIED);
    EXPECT_EQ(ask([&](sinew::proto::Call& call) {
                call.set_method("testapp::add");
                call.set_disposition(sinew::proto::RETAIN);
                *call.mutable_retain()->mutable_rref() = ids_of(counter).rref();
              }),
              grpc::PERMISSION_DENIED);
    EXPECT_NE(ask([&](sinew::proto::Call& call) {
                call.set_method("testapp::add_to");
                *call.add_arguments()->mutable_reference() = ids_of(counter);
                call.add_arguments()->set_integer(1);
              }),
              grpc::OK);
  }
  EXPECT_EQ(counter.call<&Counter::get>(), 1);
}

}  // namespace
