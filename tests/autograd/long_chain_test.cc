// A recurrent network that sends and receives a tensor in each step: what is recorded of it, and
// what is looked at for that, grows with its length and no faster.

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/autograd/internal/graph_walk.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"

using at::Tensor;
using sinew::autograd::Context;

namespace testchain {

/// Worker 1's part: what goes in and what comes out of the network.
Tensor embed(const Tensor& weight, std::int64_t step) {
  return weight * at::sin(at::arange(3.0) + static_cast<double>(step));
}
Tensor loss(const Tensor& output) { return output.square().sum(); }

}  // namespace testchain

SINEW_METHOD(testchain::embed, testchain::loss);

namespace {

using sinew::Incarnation;
using sinew::internal::EdgeId;
using sinew::internal::GraphWalk;

struct Weights {
  Weights() {
    for (Tensor* one : {&hidden, &input, &output}) one->set_requires_grad(true);
  }
  Tensor hidden = at::sin(at::arange(9.0)).view({3, 3}) * 0.3;
  Tensor input = at::ones({3});
  Tensor output = at::cos(at::arange(9.0)).view({3, 3});
};

/// The network, whose two calls are given.
template <class Embed, class Loss>
Tensor run(const Weights& weights, std::int64_t length, const Embed& embed, const Loss& loss) {
  Tensor state = at::zeros({3});
  Tensor sum = at::zeros({});
  for (std::int64_t step = 0; step < length; ++step) {
    state = at::tanh(state.matmul(weights.hidden) + embed(weights.input, step));
    sum = sum + loss(state.matmul(weights.output));
  }
  return sum;
}

class LongChains : public sinew::testing::ClusterTest {
 protected:
  struct Counts {
    std::int64_t facts = 0;
    std::int64_t nodes = 0;
  };
  Counts train(std::int64_t length) {
    const Weights weights;
    const Context context(worker(0));
    const sinew::Peer peer = worker(0).peer(1);
    const Tensor sum = run(
        weights, length,
        [&](const Tensor& weight, std::int64_t step) {
          return peer.call<&testchain::embed>(weight, step);
        },
        [&](const Tensor& output) { return peer.call<&testchain::loss>(output); });
    sinew::autograd::backward(context, {sum});
    const Weights local;
    run(local, length, &testchain::embed, &testchain::loss).backward();
    for (const auto& [there, here] :
         {std::pair(weights.hidden, local.hidden), std::pair(weights.input, local.input),
          std::pair(weights.output, local.output)}) {
      EXPECT_TRUE(sinew::autograd::gradient_of(context, there)
                      .allclose(here.grad(), /*rtol=*/1e-3, /*atol=*/1e-3));
    }
    Counts counts;
    for (int rank = 0; rank < 2; ++rank) {
      counts.facts += worker(rank).counters().at("autograd.facts");
      counts.nodes += worker(rank).counters().at("autograd.nodes");
    }
    return counts;
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(LongChains);

TEST_P(LongChains, CostWhatTheirLengthCosts) {
  start(2, sinew::MethodTable().add<&testchain::embed, &testchain::loss>());
  const Counts few = train(200);
  const Counts many = train(2000);
  EXPECT_GT(few.facts, 200);
  EXPECT_LT(many.facts, 11 * few.facts);
  EXPECT_LT(many.nodes, 11 * few.nodes);
  // Some few for each step.
  EXPECT_LT(many.nodes, 2000 * 60);
}

// ---- The walk by itself.

EdgeId edge(std::uint64_t message) { return {Incarnation{1}, message, 0}; }

TEST(GraphWalk, EndsWhereEarlierOnesHaveMet) {
  const sinew::autograd::ContextId context;
  GraphWalk walk(Incarnation{1}, context);
  const Tensor leaf = at::ones({2}).requires_grad_();
  Tensor state = leaf * 1;
  std::vector<Tensor> sent;
  std::uint64_t last = 0;
  for (std::uint64_t step = 1; step <= 100; ++step) {
    for (int i = 0; i < 10; ++i) state = state * 1;
    sent.push_back(state.exp());
    // Nothing was received, so that there is nothing to tell but that.
    const auto facts = walk.send(edge(step), torch::autograd::Edge(sent.back().grad_fn(), 0));
    ASSERT_EQ(facts.size(), 1U);
    EXPECT_EQ(facts.back().first, edge(step));
    EXPECT_TRUE(facts.back().second.received.empty());
    EXPECT_TRUE(facts.back().second.as.empty());
    if (step > 3) {
      EXPECT_LT(walk.looked_at() - last, 40U) << step;
    }
    last = walk.looked_at();
  }
  // What is sent again is known.
  const auto again = walk.send(edge(200), torch::autograd::Edge(sent[50].grad_fn(), 0));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_THAT(again[0].second.as, ::testing::ElementsAre(edge(51)));
}

}  // namespace
