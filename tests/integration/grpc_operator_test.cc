// What workers tell operators, as sinew-ctl asks them.

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/groups/process_group.h"
#include "sinew/launch/ctl/job_view.h"
#include "sinew/launch/ctl/stuck.h"
#include "sinew/launch/ctl/tables.h"
#include "sinew/tests/support/cluster.h"

namespace operated {

sinew::testing::Gate gate;

int wait_at_gate() {
  gate.pass();
  return 1;
}

/// Waits until it is cancelled.
int until_cancelled() {
  sinew::CallContext::current().cancellation().notify([] { gate.open(); });
  gate.pass();
  return 1;
}

int fail() { throw std::runtime_error("as it was told to"); }

/// Objects that are called by one at a time.
class Account {
 public:
  /// Has the turn here, and wants it there.
  int move_to(const sinew::RRef<Account>& other);
  int add() { return ++balance_; }

 private:
  int balance_ = 0;
};

}  // namespace operated

SINEW_METHOD(operated::wait_at_gate, operated::until_cancelled, operated::fail);
SINEW_SERVICE(operated::Account, (), move_to, add);

int operated::Account::move_to(const sinew::RRef<Account>& other) {
  gate.pass();
  return other.call<&Account::add>();
}

namespace sinew {
namespace {

using namespace std::chrono_literals;
using internal::Finding;
using internal::JobAccess;
using internal::JobView;
using internal::WorkerView;
using operated::Account;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

class Operated : public ::testing::Test {
 protected:
  void start(std::function<void(int rank, WorkerOptions& options)> tweak = nullptr) {
    operated::gate.close();
    testing::ClusterOptions options;
    options.names = testing::worker_names(3);
    options.transport = testing::ClusterTransport::kGrpc;
    options.methods.add<&operated::wait_at_gate>()
        .add<&operated::until_cancelled>()
        .add<&operated::fail>();
    options.methods.serve<Account>(one_at_a_time());
    options.tweak = std::move(tweak);
    cluster_ = std::make_unique<testing::Cluster>(std::move(options));
  }
  void TearDown() override {
    operated::gate.open();
    cluster_->shutdown();
  }
  const Worker& worker(int rank) const { return cluster_->worker(rank); }
  JobAccess access(int rank = 0) const {
    JobAccess access;
    access.address = worker(rank).address();
    access.patience = 60s;
    return access;
  }
  JobView ask(const std::vector<std::string>& wanted, int rank = 0) const {
    absl::StatusOr<JobView> job = internal::ask_job(access(rank), wanted);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *std::move(job) : JobView();
  }
  std::vector<Finding> stuck() const {
    const JobView before = ask({"groups"});
    return internal::find_stuck(
        before, ask({"made_calls", "served_calls", "links", "gathers", "groups"}), 0us);
  }
  static std::string text(const std::vector<Finding>& found) {
    std::string text;
    for (const Finding& finding : found) {
      for (const std::string& line : finding.lines) text += line + "\n";
    }
    return text;
  }
  std::unique_ptr<testing::Cluster> cluster_;
};

TEST_F(Operated, AnyWorkerTellsOfAll) {
  start();
  const JobView job = ask({"links"}, 2);
  ASSERT_EQ(job.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    const WorkerView& view = job[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(view.answered.ok()) << view.answered;
    EXPECT_EQ(view.state.worker().name(), worker(rank).name());
    EXPECT_EQ(view.state.worker().rank(), rank);
    EXPECT_EQ(view.state.address(), worker(rank).address());
    EXPECT_EQ(view.state.membership(), "MEMBER");
    EXPECT_EQ(view.state.process(), static_cast<std::uint64_t>(getpid()));
    EXPECT_EQ(view.state.members_size(), 3);
    EXPECT_GT(view.state.resident_bytes(), 1U << 20);
    EXPECT_GT(view.state.counters().at("rpc.max_threads"), 0);
  }
  // The others keep a lease with the first one.
  EXPECT_GE(job[0].state.links_size(), 2);
  EXPECT_EQ(job[0].state.links(0).state(), "up");
}

TEST_F(Operated, CallsAndMethodsAreSeenAtBothEnds) {
  start();
  const Future<int> waits = worker(0).peer("worker1").within(50s).async<&operated::wait_at_gate>();
  ASSERT_TRUE(operated::gate.wait_for_arrivals(1));
  EXPECT_THROW(worker(0).peer("worker1").call<&operated::fail>(), RpcError);
  const JobView job = ask({"made_calls", "served_calls", "methods"});
  ASSERT_EQ(job[0].state.made_calls_size(), 1);
  const proto::MadeCall& made = job[0].state.made_calls(0);
  EXPECT_EQ(made.method(), "operated::wait_at_gate");
  EXPECT_EQ(made.callee().name(), "worker1");
  ASSERT_EQ(job[1].state.served_calls_size(), 1);
  const proto::ServedCall* const served = &job[1].state.served_calls(0);
  EXPECT_EQ(served->method(), "operated::wait_at_gate");
  EXPECT_EQ(served->caller().name(), "worker0");
  EXPECT_EQ(served->id(), made.id());
  EXPECT_EQ(served->state(), proto::ServedCall::RUNS);
  EXPECT_GT(served->left_us(), 0U);
  EXPECT_LE(served->left_us(), 50000000U);
  ASSERT_EQ(job[1].state.methods_size(), 1);
  const proto::MethodState& method = job[1].state.methods(0);
  EXPECT_EQ(method.name(), "operated::fail");
  EXPECT_EQ(method.calls(), 1U);
  EXPECT_EQ(method.errors(), 1U);
  operated::gate.open();
  EXPECT_EQ(waits.wait(), 1);
  EXPECT_EQ(ask({"methods"})[1].state.methods_size(), 2);
}

// Their own numbers mean nothing: most of them give none.
TEST_F(Operated, ACallOfAClientIsSeenAndCancelled) {
  start();
  internal::UnaryRequest request{worker(1).address(), "", {}};
  request.call.set_method("operated::until_cancelled");
  std::thread client([&] { internal::call_all({request, request}, {}, 60s); });
  ASSERT_TRUE(operated::gate.wait_for_arrivals(2));
  const JobView job = ask({"served_calls"});
  ASSERT_EQ(job[1].state.served_calls_size(), 2);
  const proto::ServedCall& first = job[1].state.served_calls(0);
  EXPECT_EQ(first.caller().name(), "");
  EXPECT_THAT(first.origin(), HasSubstr("127.0.0.1"));
  EXPECT_NE(first.id(), job[1].state.served_calls(1).id());
  const auto none = internal::ask_cancel(access(1), "", 12345);
  EXPECT_TRUE(none.ok() && !*none) << none.status();
  const auto done = internal::ask_cancel(access(1), "", first.id());
  EXPECT_TRUE(done.ok() && *done) << done.status();
  client.join();
  EXPECT_EVENTUALLY(ask({"served_calls"})[1].state.served_calls_size(), 0);
}

TEST_F(Operated, ReferencesAndNamesSayWhoHoldsWhat) {
  start();
  {
    const auto account = worker(0).peer("worker1").remote<Account>();
    worker(1).publish("savings", std::make_shared<Account>());
    account.call<&Account::add>();
    const JobView job = ask({"references", "names"});
    ASSERT_EQ(job[0].state.references_size(), 1);
    const proto::HeldReference& user = job[0].state.references(0);
    EXPECT_EQ(user.role(), proto::HeldReference::USER);
    EXPECT_EQ(user.peers(0).name(), "worker1");
    EXPECT_THAT(user.type(), HasSubstr("operated::Account"));
    const auto& owned = job[1].state.references();
    const auto owner =
        std::find_if(owned.begin(), owned.end(), [&](const proto::HeldReference& each) {
          return each.serial() == user.serial() && each.creator() == user.creator();
        });
    ASSERT_NE(owner, owned.end());
    EXPECT_EQ(owner->role(), proto::HeldReference::OWNER);
    EXPECT_EQ(owner->peers(0).name(), "worker0");
    EXPECT_EQ(owner->type(), "operated::Account");
    ASSERT_EQ(job[1].state.names_size(), 1);
    EXPECT_EQ(job[1].state.names(0).name(), "savings");
  }
  worker(1).unpublish("savings");
}

// Each has the turn at its own object, and waits for the next one's: no chain of calls leads back.
TEST_F(Operated, APlantedDeadlockOverThreeWorkersIsNamed) {
  start();
  std::vector<RRef<Account>> accounts;
  for (int i = 0; i < 3; ++i) {
    accounts.push_back(worker(0).peer(worker(i).name()).remote<Account>());
    EXPECT_EQ(accounts.back().call<&Account::add>(), 1);
  }
  std::vector<Future<int>> moves;
  for (std::size_t i = 0; i < 3; ++i) {
    moves.push_back(accounts[i].async<&Account::move_to>(accounts[(i + 1) % 3]));
  }
  ASSERT_TRUE(operated::gate.wait_for_arrivals(3));
  EXPECT_THAT(text(stuck()), ::testing::Not(HasSubstr("wait for each other")));
  operated::gate.open();
  EXPECT_EVENTUALLY(text(stuck()), HasSubstr("6 calls wait for each other"));
  const std::string told = text(stuck());
  for (const char* part :
       {"operated::Account::move_to at worker 'worker0'", "at worker 'worker1'",
        "at worker 'worker2'", "operated::Account::add", "waits for its turn at its object"}) {
    EXPECT_THAT(told, HasSubstr(part));
  }
  // And one of them is cancelled: the others go on.
  const JobView job = ask({"served_calls"});
  for (const proto::ServedCall& call : job[1].state.served_calls()) {
    if (call.method() != "operated::Account::move_to") continue;
    const auto done = internal::ask_cancel(access(1), call.caller().name(), call.id());
    EXPECT_TRUE(done.ok() && *done) << done.status();
  }
  EXPECT_EQ(testing::error_of([&] { moves[1].wait(); }).code(), ErrorCode::kCancelled);
  EXPECT_EQ(moves[0].wait(), 2);
  EXPECT_EQ(moves[2].wait(), 2);
}

TEST_F(Operated, AWorkerWhoseThreadsAreAllTakenAnswers) {
  start([](int, WorkerOptions& options) { options.num_threads = 1; });
  std::vector<Future<int>> waits;
  for (int i = 0; i < 3; ++i)
    waits.push_back(worker(0).peer("worker1").async<&operated::wait_at_gate>());
  ASSERT_TRUE(operated::gate.wait_for_arrivals(1));
  const auto queued = [this] { return text(stuck()); };
  EXPECT_EVENTUALLY(queued(), HasSubstr("2 calls wait for a thread"));
  EXPECT_THAT(queued(), HasSubstr("calls that run: 1; threads for them: 1"));
  operated::gate.open();
  for (const Future<int>& each : waits) EXPECT_EQ(each.wait(), 1);
}

TEST_F(Operated, ABarrierSaysWhoIsMissing) {
  start();
  std::thread first([this] { worker(0).barrier(60s); });
  std::thread second([this] { worker(2).barrier(60s); });
  EXPECT_EVENTUALLY(text(stuck()), HasSubstr("a barrier waits for 'worker1'"));
  EXPECT_THAT(text(stuck()), HasSubstr("in it: 'worker0', 'worker2'"));
  worker(1).barrier(60s);
  first.join();
  second.join();
  EXPECT_THAT(ask({"gathers"})[0].state.gathers(), IsEmpty());
}

TEST_F(Operated, ACollectiveSaysWhichRankHasNotCalledIt) {
  start();
  std::vector<std::thread> ranks;
  for (int i = 0; i < 3; ++i) {
    ranks.emplace_back([this, i] {
      const ProcessGroup group = init_process_group([&] {
        GroupOptions options;
        options.worker = worker(i);
        return options;
      }());
      if (i == 2) operated::gate.pass();
      at::Tensor ones = at::ones({4});
      group.all_reduce(ones);
    });
  }
  EXPECT_EVENTUALLY(text(stuck()), HasSubstr("has not been called by 'worker2 (rank 2)'"));
  EXPECT_THAT(text(stuck()), HasSubstr("all_reduce(SUM) of float32 [4]"));
  EXPECT_THAT(internal::all_shown()[4].show(ask({"groups"})), HasSubstr("2 of 3"));
  operated::gate.open();
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(Operated, StrangersAreToldNothing) {
  start([](int, WorkerOptions& options) { options.job_token = kToken; });
  const absl::StatusOr<JobView> refused = internal::ask_job(access(), {"links"});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnauthenticated) << refused.status();
  JobAccess wrong = access();
  wrong.client.token = "0123456789abcdef0123456789abcdee";
  EXPECT_EQ(internal::ask_job(wrong, {}).status().code(), absl::StatusCode::kUnauthenticated);
  JobAccess known = access();
  known.client.token = kToken;
  const absl::StatusOr<JobView> told = internal::ask_job(known, {"links"});
  ASSERT_TRUE(told.ok()) << told.status();
  for (const WorkerView& view : *told) EXPECT_TRUE(view.answered.ok()) << view.answered;
}

TEST_F(Operated, RulesSayWhoMayAsk) {
  start([](int rank, WorkerOptions& options) {
    if (rank == 0) options.methods.restrict("sinew.operator.*", allow("worker*"));
  });
  EXPECT_EQ(internal::ask_job(access(0), {}).status().code(), absl::StatusCode::kPermissionDenied);
  const JobView job = ask({}, 1);
  EXPECT_EQ(job[0].answered.code(), absl::StatusCode::kPermissionDenied) << job[0].answered;
  EXPECT_TRUE(job[2].answered.ok());
}

TEST_F(Operated, WhatIsNotThereIsSaid) {
  start();
  const auto none = internal::ask_cancel(access(), "worker1", 12345);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(*none);
  JobAccess nowhere = access();
  nowhere.address = "127.0.0.1:1";
  EXPECT_EQ(internal::ask_job(nowhere, {}).status().code(), absl::StatusCode::kUnavailable);
  nowhere.address = "nowhere";
  EXPECT_EQ(internal::ask_job(nowhere, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sinew
