// Leaving is not losing: a barrier to which all have come is passed by all, whoever leaves as soon
// as it has passed it.

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/faulty_transport.h"
#include "sinew/tests/support/repetitions.h"

using sinew::RpcError;
using sinew::ShutdownOptions;
using sinew::Worker;
using sinew::WorkerOptions;
using sinew::internal::FaultAction;
using sinew::internal::FaultDirection;
using sinew::internal::FaultPlan;
using sinew::internal::FaultRule;
using sinew::internal::FaultyFrame;
using sinew::internal::Lane;
using sinew::internal::Transport;
using sinew::testing::eventually;
using sinew::testing::repetitions;
using namespace std::chrono_literals;

namespace {

constexpr int kWorkers = 3;
/// Ranks of those who gather.
using Ranks = std::vector<int>;
const Ranks kAllOfThem = {0, 1, 2};

enum class WorldKind { kFixed, kOpen };
/// Who coordinates the job, rank 0, and who leads its gathers, the smallest name.
enum class Lead { kCoordinator, kHighestRank };
/// Whether the workers have met in a barrier before: otherwise links come up during it.
enum class Before { kNothing, kBarrier };

class Leaving : public sinew::testing::ClusterTest {
 protected:
  /// `plan` hurts worker 1.
  void start_all(WorldKind world, Lead lead, const std::shared_ptr<FaultPlan>& plan = nullptr) {
    sinew::testing::ClusterOptions cluster;
    cluster.names.clear();
    for (int rank = 0; rank < kWorkers; ++rank) {
      const int place = lead == Lead::kCoordinator ? rank : kWorkers - 1 - rank;
      cluster.names.push_back(absl::StrCat("w", place));
    }
    cluster.methods = testapp::methods();
    cluster.tweak = [=](int, WorkerOptions& options) {
      if (world == WorldKind::kOpen) options.world_size = 0;
      options.same_host = false;
    };
    if (plan != nullptr) {
      sinew::testing::wrap_transports(cluster, [plan](int rank, std::unique_ptr<Transport> inner) {
        return rank == 1 ? sinew::internal::make_faulty_transport(std::move(inner), plan)
                         : std::move(inner);
      });
    }
    start(std::move(cluster));
    for (int rank = 0; rank < kWorkers; ++rank) {
      ASSERT_TRUE(eventually([&] { return worker(rank).workers().size() == kWorkers; }));
    }
  }

  /// Some pass a barrier, after which one of them leaves at once. What failed, by rank.
  std::vector<std::string> pass_and_leave(const Ranks& ranks, int leaver, Before before,
                                          const ShutdownOptions& how) {
    std::vector<std::string> names;
    for (const int rank : ranks) names.push_back(worker(rank).name());
    std::vector<std::string> failures(kWorkers);
    std::vector<std::thread> threads;
    for (const int rank : ranks) {
      threads.emplace_back([=, &how, &failure = failures[static_cast<std::size_t>(rank)]] {
        const Worker self = worker(rank);
        try {
          if (before == Before::kBarrier) self.barrier(names, 30s);
          self.barrier(names, 30s);
          if (rank == leaver) self.shutdown(how);
        } catch (const RpcError& error) {
          failure = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return failures;
  }

  void check_rounds(WorldKind world, const ShutdownOptions& how) {
    // Of two nobody else has the leader's answer.
    const std::vector<Ranks> sets = {kAllOfThem, {0, 1}, {1, 2}};
    const int rounds = std::max(repetitions(48), 12);
    for (int round = 0; round < rounds; ++round) {
      const Lead lead = round % 2 == 0 ? Lead::kCoordinator : Lead::kHighestRank;
      ASSERT_NO_FATAL_FAILURE(start_all(world, lead));
      const Ranks& ranks = sets[static_cast<std::size_t>(round / 2 % 3)];
      // Every other one is the leader, whose answers the others need.
      const int leader = lead == Lead::kCoordinator ? ranks.front() : ranks.back();
      const int leaver = round / 6 % 2 == 0 ? leader : ranks[static_cast<std::size_t>(round % 2)];
      const Before before = round / 12 % 2 == 0 ? Before::kNothing : Before::kBarrier;
      const std::vector<std::string> failures = pass_and_leave(ranks, leaver, before, how);
      for (const int rank : ranks) {
        EXPECT_EQ(failures[static_cast<std::size_t>(rank)], "")
            << "round " << round << ": at " << worker(rank).name() << ", one of " << ranks.size()
            << ", when " << worker(leaver).name() << " had left";
      }
      abandon();
    }
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(Leaving);

// The list of members comes by another way, and sooner than what takes long to send.
TEST_P(Leaving, WhatAWorkerHasAnsweredComesAlsoWhenItHasLeft) {
  constexpr std::int64_t kBytes = 128 << 20;
  ASSERT_NO_FATAL_FAILURE(start_all(WorldKind::kOpen, Lead::kCoordinator));
  const Worker &caller = worker(1), &leaver = worker(2);
  const auto made = caller.peer(leaver.name()).async<&testapp::make_pattern>(kBytes, 7);
  ASSERT_TRUE(eventually([&] { return leaver.counters().at("rpc.server_active_calls") > 0; }));
  leaver.shutdown({true, 60s, false});
  EXPECT_EQ(made.wait().numel(), kBytes);
  abandon();
}

TEST_P(Leaving, GracefullyBehindABarrierOfOpenMembership) {
  check_rounds(WorldKind::kOpen, {true, 30s, false});
}

TEST_P(Leaving, WithoutGraceBehindABarrierOfOpenMembership) {
  check_rounds(WorldKind::kOpen, {false, 30s, false});
}

TEST_P(Leaving, WithoutGraceBehindABarrierOfAFixedWorld) {
  check_rounds(WorldKind::kFixed, {false, 30s, false});
}

}  // namespace
