// Who is called, what can be called, and how many calls can be under way.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "sinew/tests/support/cluster.h"

namespace calls {

using sinew::RRef;

int add(int a, int b) { return a + b; }
int rank_of_callee() { return sinew::current_worker().rank(); }
std::string caller_name() { return sinew::CallContext::current().caller().name; }
int caller_rank() { return sinew::CallContext::current().caller().rank; }

std::atomic<int> notes{0};
void note() { ++notes; }

std::string motto_text = "festina lente";
const std::string& motto() { return motto_text; }
std::string consume(std::string&& text) { return std::move(text) + "!"; }
int never_throws() noexcept { return 7; }

struct Overloads {
  static int twice(int x) { return 2 * x; }
  static std::string twice(const std::string& x) { return x + x; }
};

/// Can be moved only, as a handle on something would be.
struct Ticket {
  explicit Ticket(int n) : number(std::make_unique<int>(n)) {}
  std::unique_ptr<int> number;
};
int punch(Ticket ticket) { return *ticket.number + 1; }
Ticket issue(int number) { return Ticket(number); }

class Account {
 public:
  explicit Account(int cents) : cents_(cents) {}
  Account(const std::string& owner, int cents) : owner_(owner), cents_(cents) {}
  Account() = default;

  int deposit(int cents) {
    std::lock_guard<std::mutex> lock(mutex_);
    return cents_ += cents;
  }
  int cents() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return cents_;
  }
  const std::string& owner() const noexcept { return owner_; }
  void clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    cents_ = 0;
  }
  static int currencies() { return 3; }

 private:
  mutable std::mutex mutex_;  // Such an object can neither travel nor move.
  std::string owner_ = "nobody";
  int cents_ = 0;
};

int ask_back(int x);
int around(int hops);
void pass_on(int hops);
std::atomic<int> hops_done{0};
sinew::testing::Gate gate;
int slow() {
  gate.pass();
  return 1;
}

}  // namespace calls

template <>
struct sinew::Codec<calls::Ticket> {
  static void encode(ValueWriter& writer, const calls::Ticket& ticket) {
    writer.integer(*ticket.number);
  }
  static calls::Ticket decode(const ValueReader& reader) {
    return calls::Ticket(static_cast<int>(reader.integer()));
  }
  static std::string signature() { return "integer"; }
};

// A program's namespaces may be called what some of Sinew's are.
namespace internal {
class Gauge {
 public:
  explicit Gauge(int level) : level_(level) {}
  int level() const { return level_; }

 private:
  const int level_;
};
}  // namespace internal
SINEW_SERVICE(internal::Gauge, (int));
SINEW_METHOD(internal::Gauge::level);

SINEW_METHOD(calls::add, calls::rank_of_callee, calls::caller_name, calls::caller_rank, calls::note,
             calls::motto, calls::consume, calls::never_throws);
SINEW_METHOD_AS("calls::twice(int)", sinew::overload<int(int)>(&calls::Overloads::twice));
SINEW_METHOD_AS("calls::twice(text)",
                sinew::overload<std::string(const std::string&)>(&calls::Overloads::twice));
SINEW_METHOD(calls::punch, calls::issue);
SINEW_SERVICE(calls::Account, (int));
SINEW_CONSTRUCTOR(calls::Account(const std::string&, int));
SINEW_CONSTRUCTOR(calls::Account());
SINEW_METHOD(calls::Account::deposit, calls::Account::cents, calls::Account::owner,
             calls::Account::clear, calls::Account::currencies, calls::ask_back, calls::around,
             calls::pass_on, calls::slow);

namespace calls {

int ask_back(int x) {
  const sinew::Worker worker = sinew::current_worker();
  return worker.peer(sinew::CallContext::current().caller()).call<&add>(x, 1);
}

int next_rank(const sinew::Worker& worker) {
  return (worker.rank() + 1) % static_cast<int>(worker.workers().size());
}

int around(int hops) {
  if (hops == 0) return 0;
  const sinew::Worker worker = sinew::current_worker();
  return 1 + worker.peer(next_rank(worker)).call<&around>(hops - 1);
}

void pass_on(int hops) {
  ++hops_done;
  if (hops == 0) return;
  const sinew::Worker worker = sinew::current_worker();
  // Nobody waits for it.
  worker.peer(next_rank(worker)).async<&pass_on>(hops - 1);
}

}  // namespace calls

namespace sinew {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

MethodTable calls_table() {
  MethodTable methods;
  methods.add<&calls::add>()
      .add<&calls::rank_of_callee>()
      .add<&calls::caller_name>()
      .add<&calls::caller_rank>()
      .add<&calls::note>()
      .add<&calls::motto>()
      .add<&calls::consume>()
      .add<&calls::never_throws>()
      .add<overload<int(int)>(&calls::Overloads::twice)>()
      .add<overload<std::string(const std::string&)>(&calls::Overloads::twice)>()
      .add<&calls::punch>()
      .add<&calls::issue>()
      .add<&calls::Account::deposit>()
      .add<&calls::Account::cents>()
      .add<&calls::Account::owner>()
      .add<&calls::Account::clear>()
      .add<&calls::Account::currencies>()
      .serve<calls::Account>()
      .add_constructor<calls::Account(const std::string&, int)>()
      .add_constructor<calls::Account()>()
      .add<&calls::ask_back>()
      .add<&calls::around>()
      .add<&calls::pass_on>()
      .add<&calls::slow>()
      .serve<::internal::Gauge>()
      .add<&::internal::Gauge::level>();
  return methods;
}

class CallsTest : public testing::ClusterTest {
 protected:
  void SetUp() override {
    calls::gate.close();
    calls::notes = 0;
    calls::hops_done = 0;
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(CallsTest);

// ---- Destinations.

TEST_P(CallsTest, DestinationIsNameRankInfoOrPeer) {
  start(2, calls_table());
  const Worker& caller = worker(0);
  const std::string name = "worker1";
  const WorkerInfo info = worker(1).info();
  const Peer peer = caller.peer(1);

  EXPECT_EQ(caller.peer("worker1").call<&calls::rank_of_callee>(), 1);
  EXPECT_EQ(caller.peer(name).call<&calls::rank_of_callee>(), 1);
  EXPECT_EQ(caller.peer(std::string_view(name)).call<&calls::rank_of_callee>(), 1);
  EXPECT_EQ(caller.peer(1).call<&calls::rank_of_callee>(), 1);
  EXPECT_EQ(caller.peer(std::int64_t{1}).call<&calls::rank_of_callee>(), 1);
  EXPECT_EQ(caller.peer(info).call<&calls::rank_of_callee>(), 1);
  EXPECT_EQ(caller.peer(peer).call<&calls::rank_of_callee>(), 1);
  EXPECT_EQ(peer.call<&calls::rank_of_callee>(), 1);

  EXPECT_EQ(caller.peer("worker1").async<&calls::rank_of_callee>().take(), 1);
  EXPECT_EQ(caller.peer(1).async<&calls::rank_of_callee>().take(), 1);
  EXPECT_EQ(caller.peer(info).async<&calls::rank_of_callee>().take(), 1);
  EXPECT_EQ(peer.async<&calls::rank_of_callee>().take(), 1);

  EXPECT_EQ(caller.peer("worker1").remote<&calls::rank_of_callee>().to_here(), 1);
  EXPECT_EQ(caller.peer(1).remote<&calls::rank_of_callee>().to_here(), 1);
  EXPECT_EQ(caller.peer(info).remote<&calls::rank_of_callee>().to_here(), 1);
}

TEST_P(CallsTest, TheCallerIsAMemberFromItsFirstCallOn) {
  start(3, calls_table());
  EXPECT_EQ(worker(1).peer(0).call<&calls::caller_rank>(), 1);
  EXPECT_EQ(worker(2).peer(1).call<&calls::caller_rank>(), 2);
}

TEST_P(CallsTest, WorkerCallsItself) {
  start(2, calls_table());
  const Worker& caller = worker(1);
  EXPECT_EQ(caller.peer(1).call<&calls::rank_of_callee>(), 1);
  EXPECT_EQ(caller.peer("worker1").call<&calls::caller_name>(), "worker1");
  EXPECT_EQ(caller.peer(caller.self()).async<&calls::add>(2, 3).take(), 5);
  const auto sum = caller.self().remote<&calls::add>(2, 3);
  EXPECT_TRUE(sum.is_owner());
  EXPECT_EQ(sum.local_value(), 5);
  EXPECT_EQ(sum.to_here(), 5);
}

TEST_P(CallsTest, WrongDestinationNamesWhatExists) {
  start(2, calls_table());
  const Worker& caller = worker(0);
  const auto to = [&caller](auto destination) {
    return error_of([&] { caller.peer(destination).template call<&calls::add>(1, 2); });
  };
  RpcError error = to("nobody");
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_EQ(error.message(), "no worker is called 'nobody'; known workers: worker0, worker1");
  EXPECT_EQ(error.execution(), Execution::kDidNotRun);

  error = to(2);
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_EQ(error.message(), "no worker has rank 2; known ranks: 0, 1");
  error = to(-1);
  EXPECT_EQ(error.message(), "no worker has rank -1; known ranks: 0, 1");

  WorkerInfo stranger{"stranger", 5, {4711}};
  error = to(stranger);
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_EQ(error.message(),
            "worker 'stranger' (rank 5) is not in the job; known workers: worker0, worker1");

  WorkerInfo earlier = worker(1).info();
  earlier.incarnation = {4711};
  error = to(earlier);
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_EQ(error.message(),
            "worker 'worker1' (rank 1) has been replaced by another process of that name (rank 1); "
            "look it up again to "
            "talk to the new one");

  error = error_of([] { Peer().call<&calls::add>(1, 2); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(error.message(), "this Peer is empty: get one from Worker::peer()");

  error = error_of([] { Worker().peer(0).call<&calls::add>(1, 2); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(error.message(), "this Worker is empty: start one with sinew::init_rpc()");
}

TEST_P(CallsTest, WideRankIsNotCutToAValidOne) {
  start(2, calls_table());
  const std::int64_t wide = (std::int64_t{1} << 32) + 1;
  EXPECT_EQ(error_of([&] { worker(0).peer(wide).call<&calls::add>(1, 2); }).code(),
            ErrorCode::kNotFound);
}

TEST_P(CallsTest, EveryCallLandsAtItsNeighbour) {
  start(4, calls_table());
  for (int rank = 0; rank < 4; ++rank) {
    const int neighbour = (rank + 1) % 4;
    EXPECT_EQ(worker(rank).peer(neighbour).call<&calls::rank_of_callee>(), neighbour);
    EXPECT_EQ(worker(rank).peer(neighbour).call<&calls::caller_name>(),
              absl::StrCat("worker", rank));
  }
}

// ---- What can be called.

TEST_P(CallsTest, FreeFunctions) {
  start(2, calls_table());
  const Worker& caller = worker(0);
  EXPECT_EQ(caller.peer(1).call<&calls::add>(2, 3), 5);
  EXPECT_EQ(caller.peer(1).call<&calls::add>(std::int8_t{2}, 3.0), 5) << "converted at the caller";
  EXPECT_EQ(caller.peer(1).call<&calls::motto>(), "festina lente") << "a reference is copied";
  EXPECT_EQ(caller.peer(1).call<&calls::consume>("text"), "text!");
  EXPECT_EQ(caller.peer(1).call<&calls::never_throws>(), 7);
}

TEST_P(CallsTest, VoidResults) {
  start(2, calls_table());
  worker(0).peer(1).call<&calls::note>();
  EXPECT_EQ(calls::notes, 1);
  worker(0).peer(1).async<&calls::note>().wait();
  EXPECT_EQ(calls::notes, 2);
  const auto done = worker(0).peer(1).remote<&calls::note>();
  EXPECT_EQ(done.to_here(), std::monostate());
  EXPECT_EQ(calls::notes, 3);
}

TEST_P(CallsTest, StaticMembersAndOverloads) {
  start(2, calls_table());
  EXPECT_EQ(worker(0).peer(1).call<&calls::Account::currencies>(), 3);
  EXPECT_EQ(worker(0).peer(1).call<overload<int(int)>(&calls::Overloads::twice)>(4), 8);
  EXPECT_EQ(
      worker(0).peer(1).call<overload<std::string(const std::string&)>(&calls::Overloads::twice)>(
          "ab"),
      "abab");
}

TEST_P(CallsTest, MoveOnlyArgumentsAndResults) {
  start(2, calls_table());
  EXPECT_EQ(worker(0).peer(1).call<&calls::punch>(calls::Ticket(4)), 5);
  EXPECT_EQ(*worker(0).peer(1).call<&calls::issue>(9).number, 9);
  const auto kept = worker(0).peer(1).remote<&calls::issue>(11);
  EXPECT_EQ(*kept.to_here_async().take().number, 11);
}

TEST_P(CallsTest, MemberFunctionsThroughAReference) {
  start(2, calls_table());
  const auto account = worker(0).peer(1).remote<calls::Account>(100);
  EXPECT_EQ(account.owner_name(), "worker1");
  EXPECT_EQ(account.call<&calls::Account::deposit>(5), 105);
  EXPECT_EQ(account.async<&calls::Account::cents>().take(), 105);
  EXPECT_EQ(account.call<&calls::Account::owner>(), "nobody");
  account.call<&calls::Account::clear>();
  EXPECT_EQ(account.remote<&calls::Account::cents>().to_here(), 0);
  EXPECT_EQ(account.within(std::chrono::seconds(30)).call<&calls::Account::deposit>(1), 1);
}

TEST_P(CallsTest, MemberFunctionsOfOnesOwnObject) {
  start(2, calls_table());
  const auto account = std::make_shared<calls::Account>(1);
  const auto shared = share_rref(worker(0), account);
  EXPECT_EQ(shared.call<&calls::Account::deposit>(2), 3);
  EXPECT_EQ(account->cents(), 3) << "the reference is to the object itself";
}

TEST_P(CallsTest, EachConstructor) {
  start(2, calls_table());
  const Peer peer = worker(0).peer(1);
  EXPECT_EQ((peer.remote<calls::Account>(3)).call<&calls::Account::cents>(), 3);
  const auto named = peer.remote<calls::Account(const std::string&, int)>("ada", 4);
  EXPECT_EQ(named.call<&calls::Account::owner>(), "ada");
  EXPECT_EQ(named.call<&calls::Account::cents>(), 4);
  EXPECT_EQ((peer.remote<calls::Account()>()).call<&calls::Account::cents>(), 0);
  EXPECT_EQ((peer.remote<::internal::Gauge>(5)).call<&::internal::Gauge::level>(), 5);
}

TEST(MethodTableTest, TwoMethodsOfOneNameAreRefused) {
  MethodTable methods = calls_table();
  methods.add<&calls::add>();  // The same one again.
  EXPECT_EQ(methods.names(), calls_table().names());
  EXPECT_EQ(methods.find("calls::subtract"), nullptr);
  ASSERT_NE(methods.find("calls::add"), nullptr);
  EXPECT_EQ(methods.find("calls::add")->signature, "(integer,integer)->integer");
  EXPECT_EQ(methods.digest(), calls_table().digest());
  EXPECT_NE(methods.digest(), MethodTable().digest());
}

TEST(MethodTableTest, TablesAreCopiedAndMoved) {
  MethodTable methods = calls_table();
  MethodTable copy = methods;
  const MethodTable moved = std::move(copy);
  EXPECT_EQ(moved.digest(), methods.digest());
  MethodTable assigned;
  assigned = std::move(methods);
  EXPECT_EQ(assigned.digest(), moved.digest());
  methods = MethodTable();
  methods.add<&calls::add>();
  EXPECT_EQ(methods.names(), std::vector<std::string>{"calls::add"});
}

// ---- Many calls.

TEST_P(CallsTest, ManyCallsInFlightEachGetTheirOwnResult) {
  start(2, calls_table());
  for (const int count : {100, 1000}) {
    std::vector<Future<int>> sums;
    for (int i = 0; i < count; ++i) sums.push_back(worker(0).peer(1).async<&calls::add>(i, 1));
    const std::vector<int> values = wait_all(std::move(sums));
    for (int i = 0; i < count; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], i + 1);
  }
}

TEST_P(CallsTest, EveryWorkerCallsEveryOtherAtOnce) {
  constexpr int kWorkers = 4;
  start(kWorkers, calls_table());
  std::vector<Future<int>> sums;
  for (int i = 0; i < 50; ++i) {
    for (int from = 0; from < kWorkers; ++from) {
      for (int to = 0; to < kWorkers; ++to) {
        sums.push_back(worker(from).peer(to).async<&calls::add>(from * 100 + to, i));
      }
    }
  }
  const std::vector<int> values = wait_all(std::move(sums));
  std::size_t position = 0;
  for (int i = 0; i < 50; ++i) {
    for (int from = 0; from < kWorkers; ++from) {
      for (int to = 0; to < kWorkers; ++to) ASSERT_EQ(values[position++], from * 100 + to + i);
    }
  }
}

TEST_P(CallsTest, ManyThreadsCallOnePeer) {
  start(2, calls_table());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([this, t, &wrong] {
      for (int i = 0; i < 50; ++i) {
        if (worker(0).peer(1).call<&calls::add>(t, i) != t + i) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(CallsTest, SlowCallHoldsNobodyUp) {
  start(3, calls_table());
  const Future<int> slow = worker(0).peer(1).async<&calls::slow>();
  ASSERT_TRUE(calls::gate.wait_for_arrivals(1));
  EXPECT_EQ(worker(0).peer(1).call<&calls::add>(1, 1), 2);
  EXPECT_EQ(worker(2).peer(1).call<&calls::add>(1, 1), 2);
  EXPECT_FALSE(slow.done());
  calls::gate.open();
  EXPECT_EQ(slow.wait(), 1);
}

// ---- Calls that make calls.

TEST_P(CallsTest, CalleeCallsItsCallerBack) {
  start(2, calls_table());
  EXPECT_EQ(worker(0).peer(1).call<&calls::ask_back>(5), 6);
  EXPECT_EQ(worker(0).peer(0).call<&calls::ask_back>(5), 6) << "itself";
}

TEST_P(CallsTest, NestedCallsGoAround) {
  start(3, calls_table());
  EXPECT_EQ(worker(0).peer(1).call<&calls::around>(20), 20);
}

TEST_P(CallsTest, GracefulShutdownDrainsAChainThatNobodyWaitsFor) {
  start(3, calls_table());
  worker(0).peer(1).async<&calls::pass_on>(20);
  finish();
  EXPECT_EQ(calls::hops_done, 21);
}

TEST_P(CallsTest, GracefulShutdownDrainsChainsOfEveryWorker) {
  start(4, calls_table());
  for (int rank = 0; rank < 4; ++rank) {
    worker(rank).peer((rank + 1) % 4).async<&calls::pass_on>(20);
  }
  finish();
  EXPECT_EQ(calls::hops_done, 4 * 21);
}

// ---- Workers come and go in one process.

TEST_P(CallsTest, StartShutdownStart) {
  for (int round = 0; round < 3; ++round) {
    start(2, calls_table());
    EXPECT_EQ(worker(0).peer(1).call<&calls::add>(round, 1), round + 1);
    EXPECT_EQ(worker(1).peer(0).call<&calls::add>(round, 2), round + 2);
    finish();
  }
}

TEST_P(CallsTest, TwoJobsInOneProcess) {
  start(2, calls_table());
  testing::ClusterOptions options;
  options.transport = GetParam();
  options.methods = calls_table();
  testing::Cluster other(std::move(options));
  EXPECT_EQ(other.worker(0).peer(1).call<&calls::add>(1, 2), 3);
  EXPECT_EQ(worker(0).peer(1).call<&calls::add>(1, 2), 3);
  // Names are those of the job.
  EXPECT_NE(other.worker(0).info(), worker(0).info());
  const RpcError error =
      error_of([&] { worker(0).peer(other.worker(1).info()).call<&calls::add>(1, 2); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(other.try_shutdown(), ::testing::IsEmpty());
  EXPECT_EQ(worker(1).peer(0).call<&calls::add>(1, 2), 3);
}

TEST_P(CallsTest, UseAfterShutdownIsAnError) {
  start(2, calls_table());
  const Worker first = worker(0);
  const Peer peer = first.peer(1);
  const auto account = peer.remote<calls::Account>(1);
  EXPECT_EQ(account.call<&calls::Account::cents>(), 1);
  ASSERT_TRUE(first.is_running());
  abandon();
  EXPECT_FALSE(first.is_running());

  RpcError error = error_of([&] { peer.call<&calls::add>(1, 2); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(error.message(), "worker 'worker0' was shut down: it makes no calls any more");
  error = error_of([&] { peer.async<&calls::add>(1, 2); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  error = error_of([&] { peer.remote<&calls::add>(1, 2); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  error = error_of([&] { account.call<&calls::Account::cents>(); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("worker 'worker0' was shut down"));
  first.shutdown();  // Idempotent.
  EXPECT_EQ(first.name(), "worker0");
}

TEST_P(CallsTest, ThereIsNoCallContextOutsideOfAHandler) {
  EXPECT_EQ(CallContext::current_or_null(), nullptr);
  EXPECT_EQ(error_of([] { CallContext::current(); }).code(), ErrorCode::kFailedPrecondition);
  start(2, calls_table());
  EXPECT_EQ(worker(0).peer(1).call<&calls::rank_of_callee>(), 1);
  EXPECT_EQ(CallContext::current_or_null(), nullptr);
}

}  // namespace
}  // namespace sinew
