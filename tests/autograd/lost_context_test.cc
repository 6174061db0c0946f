// Where the creator of a context is taken for lost nothing is recorded in it, while others may work
// in it still: what they ask for there must not look as if gradients came back.

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "ATen/core/grad_mode.h"
#include "sinew/autograd/internal/context_thread.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"

namespace testgrad {

using at::Tensor;

Tensor doubled(const Tensor& input) { return input * 2; }
/// Without a graph.
Tensor numbers(const Tensor& input) { return doubled(input).detach(); }

}  // namespace testgrad

SINEW_METHOD(testgrad::doubled, testgrad::numbers);

namespace {

using sinew::testing::eventually;
using ::testing::HasSubstr;

/// Worker1 works in a context of worker0, whom worker2 takes for lost.
class LostContexts : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    start(3, sinew::MethodTable().add<&testgrad::doubled>().add<&testgrad::numbers>());
    const sinew::autograd::ContextId id{worker(0).info().incarnation, 1, 77};
    evict(0);
    ASSERT_TRUE(eventually([&] { return worker(2).workers().size() == 2; }));
    // As if worker1 had not heard of it.
    scope_ = std::make_unique<sinew::internal::ContextThreadScope>(
        std::make_shared<sinew::internal::ContextState>(id, worker(1).info()));
  }
  void TearDown() override {
    scope_.reset();
    abandon();
  }

  static at::Tensor leaf() { return at::ones({2}).set_requires_grad(true); }

 private:
  std::unique_ptr<sinew::internal::ContextThreadScope> scope_;
};

TEST_P(LostContexts, AResultWhoseGradientCannotComeBackIsAnError) {
  const sinew::RpcError error =
      sinew::testing::error_of([&] { worker(1).peer(2).call<&testgrad::doubled>(leaf()); });
  EXPECT_EQ(error.code(), sinew::ErrorCode::kAborted);
  EXPECT_THAT(error.message(), HasSubstr("worker 'worker2' takes the creator of autograd context"));
}

TEST_P(LostContexts, AResultWithoutAGradientIsAResult) {
  EXPECT_TRUE(at::equal(worker(1).peer(2).call<&testgrad::numbers>(leaf()), at::full({2}, 2.0)));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(worker(1).peer(2).call<&testgrad::doubled>(leaf()), at::full({2}, 2.0)));
}

// Worker1 names a creator that nobody has ever seen.
class InventedContexts : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override { start(3, sinew::MethodTable().add<&testgrad::doubled>()); }
  void TearDown() override { abandon(); }
  std::int64_t contexts() const { return worker(2).counters().at("autograd.contexts"); }
};

TEST_P(InventedContexts, GoWithWhoBroughtThem) {
  {
    const sinew::autograd::ContextId id{{4711}, 1, 77};
    const sinew::internal::ContextThreadScope scope(
        std::make_shared<sinew::internal::ContextState>(id, worker(1).info()));
    worker(1).peer(2).call<&testgrad::doubled>(at::ones({2}).set_requires_grad(true));
  }
  EXPECT_EQ(contexts(), 1);
  evict(1);
  EXPECT_TRUE(eventually([&] { return contexts() == 0; }));
}

SINEW_INSTANTIATE_CLUSTER_TEST(LostContexts);
SINEW_INSTANTIATE_CLUSTER_TEST(InventedContexts);

}  // namespace
