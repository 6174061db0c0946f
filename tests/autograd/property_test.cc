#include <cstdlib>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "sinew/sinew.h"
#include "sinew/tests/autograd/random_graph.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/repetitions.h"

namespace {

using sinew::testing::ClusterTransport;

/// Seeds of this run: from SINEW_SEED when it is set, to repeat a failure, otherwise drawn.
std::uint64_t first_seed() {
  const char* given = std::getenv("SINEW_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

class RandomGraphs : public sinew::testing::ClusterTest {};

// Operators, sharing, ping-pong, several sends of one tensor, views, changes in place, sparse
// gradients, unused results, functions with a backward of their own, hooks, several roots, repeated
// passes: whatever the graph, the gradients are those of local autograd.
TEST_P(RandomGraphs, EqualLocalAutograd) {
  const int graphs =
      sinew::testing::repetitions(GetParam() == ClusterTransport::kInproc ? 150 : 25);
  const std::uint64_t seed = first_seed();
  for (int size = 2; size <= 4; ++size) {
    sinew::MethodTable methods;
    testgrad::add_methods(methods);
    start(size, methods);
    int gradients = 0;
    std::int64_t sends = 0;
    int tame = 0;
    for (int i = 0; i < graphs; ++i) {
      testgrad::GraphOptions options;
      options.workers = size;
      options.seed = seed + static_cast<std::uint64_t>(i);
      options.passes = 1 + i % 3;
      const testgrad::GraphResult result = testgrad::check_random_graph(worker(0), options);
      gradients += result.gradients;
      sends += result.sends;
      tame += result.tame ? 1 : 0;
      ASSERT_EQ(result.differences, "")
          << "seed " << options.seed << ", " << size << " workers, " << options.passes << " passes";
    }
    // The graphs are worth comparing.
    EXPECT_GT(gradients, 2 * graphs);
    EXPECT_GT(sends, graphs);
    EXPECT_GT(tame, graphs / 2);
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EVENTUALLY(worker(rank).counters()["autograd.contexts"], 0) << "worker " << rank;
    }
    finish();
  }
}

// Whatever runs at the same time, and whatever comes first.
TEST_P(RandomGraphs, HaveTheSameBitsInEachRun) {
  const int graphs = sinew::testing::repetitions(GetParam() == ClusterTransport::kInproc ? 60 : 15);
  const std::uint64_t seed = first_seed();
  sinew::MethodTable methods;
  testgrad::add_methods(methods);
  start(4, methods);
  for (int i = 0; i < graphs; ++i) {
    testgrad::GraphOptions options;
    options.workers = 4;
    options.seed = seed + static_cast<std::uint64_t>(i);
    options.passes = 1 + i % 2;
    ASSERT_EQ(testgrad::differences_of_runs(worker(0), options, 4), "") << "seed " << options.seed;
  }
  finish();
}

SINEW_INSTANTIATE_CLUSTER_TEST(RandomGraphs);

}  // namespace
