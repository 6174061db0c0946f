// Workers of a cluster come, go and come back, and what they leave behind is told.

#include "sinew/testing/cluster.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/testing/error_of.h"
#include "sinew/testing/gate.h"
#include "sinew/testing/leftovers.h"
#include "sinew/tests/support/eventual_value.h"
#include "sinew/tests/testing/store.h"

using sinew::ErrorCode;
using sinew::Execution;
using sinew::Future;
using sinew::RpcError;
using sinew::Worker;
using sinew::testing::Cluster;
using sinew::testing::ClusterOptions;
using sinew::testing::ClusterTransport;
using sinew::testing::ClusterWorld;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::Failure;
using sinew::testing::Fault;
using sinew::testing::replies;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testkit::bump;
using testkit::Cell;
using namespace std::chrono_literals;

namespace {

std::string failure_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const Failure& failure) {
    return failure.what();
  }
  ADD_FAILURE() << "no Failure was thrown";
  return "";
}

std::vector<std::string> names_at(const Worker& worker) {
  std::vector<std::string> names;
  for (const sinew::WorkerInfo& member : worker.workers()) names.push_back(member.name);
  return names;
}

struct Kind {
  ClusterWorld world;
  ClusterTransport transport;
};

std::vector<Kind> kinds() {
  std::vector<Kind> kinds = {{ClusterWorld::kFixed, ClusterTransport::kInproc},
                             {ClusterWorld::kOpen, ClusterTransport::kInproc}};
#ifndef __SANITIZE_THREAD__
  kinds.push_back({ClusterWorld::kFixed, ClusterTransport::kGrpc});
  kinds.push_back({ClusterWorld::kOpen, ClusterTransport::kGrpc});
#endif
  return kinds;
}

std::string kind_name(const ::testing::TestParamInfo<Kind>& info) {
  return absl::StrCat(info.param.world == ClusterWorld::kFixed ? "Fixed" : "Open",
                      info.param.transport == ClusterTransport::kInproc ? "Inproc" : "Grpc");
}

class ClusterOf : public ::testing::TestWithParam<Kind> {
 protected:
  ClusterOf() {
    ClusterOptions options;
    options.names = {"learner", "actor", "other"};
    options.methods = testkit::methods();
    options.world = GetParam().world;
    options.transport = GetParam().transport;
    cluster_ = std::make_unique<Cluster>(std::move(options));
  }
  void TearDown() override { cluster_->shutdown(); }

  std::unique_ptr<Cluster> cluster_;
};
INSTANTIATE_TEST_SUITE_P(All, ClusterOf, ::testing::ValuesIn(kinds()), kind_name);

TEST_P(ClusterOf, HasItsWorkersByRankAndName) {
  EXPECT_EQ(cluster_->size(), 3);
  for (int rank = 0; rank < 3; ++rank) {
    const Worker worker = cluster_->worker(rank);
    EXPECT_EQ(worker.rank(), rank);
    EXPECT_EQ(cluster_->worker(worker.name()), worker);
    EXPECT_TRUE(eventually([&] { return worker.workers().size() == 3; }));
  }
  EXPECT_EQ(cluster_->worker("actor").peer("learner").call<&bump>(2), 2);
  const RpcError unknown = error_of([&] { cluster_->worker("lerner"); });
  EXPECT_EQ(unknown.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(unknown.message(),
            "the cluster has no worker 'lerner', but 'learner', 'actor', 'other'");
  EXPECT_EQ(error_of([&] { cluster_->worker(3); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { cluster_->worker(-1); }).code(), ErrorCode::kInvalidArgument);
}

// Of each rank: the first one has founded the job.
TEST_P(ClusterOf, AKilledWorkerIsLostAndAnotherOneTakesItsPlace) {
  for (const std::string victim : {"learner", "actor", "other"}) {
    SCOPED_TRACE(victim);
    const Worker caller = cluster_->worker(victim == "actor" ? "other" : "actor");
    const sinew::Peer peer = caller.peer(victim);
    const auto cell = peer.remote<Cell>(1);
    cell.created().wait();
    const Fault held = cluster_->faults().hold(replies<&bump>().at(victim));
    const Future<std::int64_t> waiting = peer.async<&bump>(1);
    held.wait_for_hits(1);

    cluster_->kill(victim);
    const RpcError error = error_of([&] { waiting.wait(); });
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_EQ(error.execution(), Execution::kMayHaveRun);
    EXPECT_FALSE(peer.alive());
    EXPECT_EQ(names_at(caller).size(), 2u);
    EXPECT_EQ(error_of([&] { cell.call<&Cell::get>(); }).code(), ErrorCode::kUnavailable);
    EXPECT_FALSE(cluster_->worker(victim).is_running());
    held.remove();

    const Worker next = cluster_->start(victim);
    EXPECT_EQ(next, cluster_->worker(victim));
    EXPECT_EQ(caller.peer(victim).call<&bump>(1), 1);
    // What the first one has left.
    EXPECT_EQ(error_of([&] { peer.call<&bump>(1); }).code(), ErrorCode::kUnavailable);
    EXPECT_EQ(names_at(caller).size(), 3u);
  }
}

TEST_P(ClusterOf, AnotherOneMayJoinAnOpenJob) {
  if (GetParam().world == ClusterWorld::kFixed) {
    EXPECT_EQ(error_of([&] { cluster_->start("late"); }).code(), ErrorCode::kInvalidArgument);
  } else {
    const Worker late = cluster_->start("late");
    EXPECT_EQ(late.rank(), 3);
    EXPECT_EQ(cluster_->size(), 4);
    EXPECT_EQ(late.peer("learner").call<&bump>(1), 1);
    for (const char* name : {"learner", "actor", "other"}) {
      EXPECT_THAT(names_at(cluster_->worker(name)),
                  ElementsAre("learner", "actor", "other", "late"));
    }
  }
  const RpcError twice = error_of([&] { cluster_->start("actor"); });
  EXPECT_EQ(twice.message(), "worker 'actor' of the cluster runs already");
}

TEST_P(ClusterOf, AnEvictedWorkerRejoins) {
  const auto cell = cluster_->worker("learner").peer("actor").remote<Cell>(1);
  cell.created().wait();
  cluster_->evict("actor");
  const Worker evicted = cluster_->worker("actor");
  EXPECT_EQ(evicted.membership_state(), sinew::MembershipState::kEvicted);
  EXPECT_EQ(error_of([&] { evicted.peer("learner").call<&bump>(1); }).code(), ErrorCode::kAborted);
  EXPECT_EQ(error_of([&] { cell.call<&Cell::get>(); }).code(), ErrorCode::kUnavailable);
  cluster_->replace("actor", evicted.rejoin());
  EXPECT_EQ(cluster_->worker("actor").peer("learner").call<&bump>(1), 1);

  cluster_->kill("other");
  EXPECT_EQ(error_of([&] { cluster_->evict("actor"); }).message(),
            "worker 'actor' can be evicted by two others or more; of the cluster there run 1");
}

TEST_P(ClusterOf, ABrokenConnectionIsMadeAnew) {
  const Worker actor = cluster_->worker("actor");
  for (int i = 1; i <= 20; ++i) {
    EXPECT_EQ(actor.peer("learner").call<&bump>(1), i);
    EXPECT_TRUE(cluster_->break_connection(i % 2 == 0 ? "learner" : "actor",
                                           i % 2 == 0 ? "actor" : "learner"));
  }
  EXPECT_FALSE(cluster_->break_connection("actor", "actor"));
}

TEST_P(ClusterOf, TellsWhatIsLeft) {
  const Worker actor = cluster_->worker("actor");
  EXPECT_THAT(cluster_->leftovers(), IsEmpty());
  {
    const auto cell = actor.peer("learner").remote<Cell>(1);
    cell.created().wait();
    // A call is served until a moment after its reply.
    const std::vector<std::string> expected = {"learner: rref.forks is 1",
                                               "learner: rref.owned is 1"};
    EXPECT_EVENTUALLY(sinew::testing::leftovers(cluster_->worker("learner")), expected);
    const std::string failure = failure_of([&] { cluster_->wait_until_at_rest(1ms); });
    EXPECT_THAT(failure, HasSubstr("the cluster does not come to rest:\nlearner: rref.forks is 1"));
    EXPECT_THAT(failure, HasSubstr("actor: rref.users is 1"));
  }
  cluster_->wait_until_at_rest();
  // What the program holds at the end is no leak.
  const auto kept = actor.peer("learner").remote<Cell>(1);
  kept.created().wait();
  EXPECT_THAT(cluster_->try_shutdown(), IsEmpty());
}

TEST(ClusterTest, WhoLeavesCanBeStartedAgain) {
  ClusterOptions options;
  options.names = {"learner", "actor"};
  options.methods = testkit::methods();
  options.world = ClusterWorld::kOpen;
  Cluster cluster(std::move(options));
  for (const std::string name : {"actor", "learner"}) {
    cluster.worker(name).shutdown();
    cluster.start(name);
    EXPECT_GT(cluster.worker("learner").peer("actor").call<&bump>(1), 0);
    EXPECT_GT(cluster.worker("actor").peer("learner").call<&bump>(1), 0);
  }
  cluster.shutdown();
}

TEST(ClusterTest, AShutdownThatFailsSaysWhoAndWhatIsLeft) {
  ClusterOptions options;
  options.names = {"learner", "actor"};
  options.methods = testkit::methods();
  options.shutdown_timeout = 3s;
  Cluster cluster(std::move(options));
  const Future<void> stalled = cluster.worker("actor").peer("learner").async<&testkit::stall>();
  EXPECT_EVENTUALLY(cluster.worker("learner").counters()["rpc.server_active_calls"], 1);
  const std::string failure = failure_of([&] { cluster.shutdown(); });
  EXPECT_THAT(failure, HasSubstr("the cluster leaves something behind:\n"));
  EXPECT_THAT(failure,
              HasSubstr("actor: graceful shutdown of worker 'actor' failed while it waited "
                        "for calls to end"));
  EXPECT_THAT(failure, HasSubstr("learner: rpc.server_active_calls is 1"));
  testkit::finish_stalled();
}

TEST(ClusterTest, TweaksAreOfOneWorker) {
  ClusterOptions options;
  options.names = sinew::testing::worker_names(2);
  options.tweak = [](int rank, sinew::WorkerOptions& worker) {
    if (rank == 1) worker.methods = testkit::methods();
  };
  Cluster cluster(std::move(options));
  EXPECT_EQ(cluster.worker(0).peer("worker1").call<&bump>(1), 1);
  EXPECT_EQ(error_of([&] { cluster.worker(1).peer("worker0").call<&bump>(1); }).code(),
            ErrorCode::kUnimplemented);
  cluster.shutdown();
  // Once more is nothing.
  cluster.shutdown();
}

#ifndef __SANITIZE_THREAD__
/// Of the clusters of this process.
std::vector<std::string> meeting_files() {
  const std::string prefix = absl::StrCat("sinew_cluster_", getpid(), "_");
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::temp_directory_path())) {
    const std::string name = entry.path().filename();
    if (name.compare(0, prefix.size(), prefix) == 0) names.push_back(name);
  }
  return names;
}

TEST(ClusterTest, LeavesNoFiles) {
  // The last worker that leaves takes the file of their meeting with it; of those that end at once,
  // none does.
  for (const bool with_grace : {true, false}) {
    SCOPED_TRACE(with_grace);
    {
      ClusterOptions options;
      options.transport = ClusterTransport::kGrpc;
      Cluster cluster(std::move(options));
      EXPECT_FALSE(meeting_files().empty());
      if (with_grace) cluster.shutdown();
    }
    EXPECT_THAT(meeting_files(), IsEmpty());
  }
}

TEST(ClusterTest, LeavesNothingWhereNotAllCouldStart) {
  ClusterOptions options;
  options.transport = ClusterTransport::kGrpc;
  options.world = ClusterWorld::kOpen;
  options.names = {"learner", "not a name"};
  EXPECT_EQ(error_of([&] { const Cluster cluster(options); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(meeting_files(), IsEmpty());
}
#endif

TEST(ClusterTest, AFailureToStartIsThrown) {
  ClusterOptions options;
  options.names = {"not a name"};
  const RpcError error = error_of([&] { const Cluster cluster(options); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("not a name"));
  options.names.clear();
  EXPECT_EQ(error_of([&] { const Cluster cluster(options); }).message(),
            "a cluster has a worker at least");
}

TEST(ClusterTest, AGateHoldsHandlers) {
  Cluster cluster({"learner", "actor"}, testkit::methods());
  const sinew::Peer peer = cluster.worker("actor").peer("learner");
  const Future<void> first = peer.async<&testkit::wait_at_gate>();
  const Future<void> second = peer.async<&testkit::wait_at_gate>();
  EXPECT_TRUE(testkit::gate().wait_for_arrivals(2));
  EXPECT_EQ(testkit::gate().arrivals(), 2);
  EXPECT_FALSE(first.done());
  testkit::gate().open();
  first.wait();
  second.wait();
  testkit::gate().close();
  EXPECT_EQ(testkit::gate().arrivals(), 0);
  cluster.shutdown();
}

TEST(ErrorOf, IsTheErrorOrAFailure) {
  EXPECT_EQ(error_of([] { throw RpcError(ErrorCode::kAborted, "so"); }).message(), "so");
  EXPECT_EQ(failure_of([] { error_of([] {}); }),
            "an RpcError should have been thrown, and nothing was");
  EXPECT_EQ(failure_of([] { error_of([] { throw std::runtime_error("bad"); }); }),
            "an RpcError should have been thrown, not: bad");
}

TEST(Eventually, WaitsForWhatBecomesTrue) {
  std::atomic<int> count{0};
  std::thread counts([&] { ++count; });
  EXPECT_TRUE(eventually([&] { return count == 1; }));
  counts.join();
  sinew::testing::wait_until("it counts", [&] { return count == 1; });
  EXPECT_FALSE(eventually([&] { return count == 2; }, 1ms));
  EXPECT_EQ(failure_of([&] {
              sinew::testing::wait_until(
                  "it counts on", [&] { return count == 2; }, 1ms);
            }),
            "waited in vain until it counts on");
  EXPECT_EVENTUALLY(++count, 5);
  EXPECT_EQ(count, 5) << "what matched is not asked for again";
}

}  // namespace
