// Gradients between processes, some of which are killed. The test is a worker itself, with rank 0.

#include <csignal>
#include <future>
#include <memory>
#include <random>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/autograd/gated_chain.h"
#include "sinew/tests/autograd/random_graph.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::autograd::Context;
using sinew::testing::ChildProcess;
using sinew::testing::error_of;
using sinew::testing::eventually;
using testgrad::AtBackward;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace {

class AutogradProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    sinew::WorkerOptions options;
    options.name = "worker0";
    options.methods = testapp::methods();
    testgrad::add_methods(options.methods);
    testgrad::add_chain_methods(options.methods);
    options.init_method = "file://" + folder_.file("meet");
    options.lease = std::chrono::minutes(10);
    self_ = sinew::init_rpc(options);
    for (int rank = 1; rank < 4; ++rank) {
      children_.push_back(
          std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER}));
      const std::string name = absl::StrCat("worker", rank);
      const std::string answer = children_.back()->ask(
          absl::StrCat("start name=", name, " lease_ms=600000 init=file://", folder_.file("meet")));
      ASSERT_THAT(answer, StartsWith("ok "));
      ASSERT_TRUE(eventually([&] { return self_.workers().size() == children_.size() + 1; }));
    }
  }
  void TearDown() override {
    if (self_.valid()) self_.shutdown({false, std::chrono::seconds(60), false});
  }
  std::int64_t counter(int rank, const std::string& name) {
    if (rank == 0) return self_.counters()[name];
    return self_.peer(absl::StrCat("worker", rank)).call<&testapp::counter_value>(name);
  }

  const sinew::testing::TemporaryFolder folder_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
  sinew::Worker self_;
};

TEST_F(AutogradProcesses, RandomGraphsEqualLocalAutograd) {
  const std::uint64_t seed = std::random_device{}();
  for (int i = 0; i < 25; ++i) {
    testgrad::GraphOptions options;
    options.workers = 4;
    options.seed = seed + static_cast<std::uint64_t>(i);
    options.passes = 1 + i % 2;
    ASSERT_EQ(testgrad::check_random_graph(self_, options).differences, "")
        << "seed " << options.seed;
  }
}

class AutogradKill : public AutogradProcesses, public ::testing::WithParamInterface<int> {};

TEST_P(AutogradKill, WorkerInTheMiddleOfBackward) {
  const int victim = GetParam();
  const std::string name = absl::StrCat("worker", victim);
  {
    Context context(self_);
    const at::Tensor input = at::ones({2}).set_requires_grad(true);
    const at::Tensor loss =
        self_.peer("worker1")
            .call<&testgrad::chain>(input, std::vector<std::string>{"worker2", "worker3"}, name,
                                    AtBackward::kStop)
            .sum();
    const auto id = context.id();
    auto pass = std::async(std::launch::async, [&] {
      return error_of([&] { sinew::autograd::backward(self_, id, {loss}); });
    });
    ASSERT_TRUE(eventually([&] { return self_.peer(name).call<&testgrad::has_stopped>(); }));
    children_[static_cast<std::size_t>(victim - 1)]->signal(SIGKILL);
    // Long before its lease is over.
    ASSERT_EQ(pass.wait_for(std::chrono::minutes(1)), std::future_status::ready);
    const RpcError error = pass.get();
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_THAT(error.message(), HasSubstr("worker '" + name + "'"));
    EXPECT_TRUE(sinew::autograd::gradients(context).empty());
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      EXPECT_EVENTUALLY(counter(rank, "autograd.passes"), 0) << rank;
    }
  }
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    EXPECT_EVENTUALLY(counter(rank, "autograd.contexts"), 0) << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(EachHop, AutogradKill, ::testing::Values(1, 2, 3));

TEST_F(AutogradProcesses, InitiatorDiesThatAReferenceBelongsTo) {
  {
    Context context(self_);
    const at::Tensor input = at::ones({}).set_requires_grad(true);
    const auto loss = self_.peer("worker1").remote<&testgrad::chain>(
        input, std::vector<std::string>{"worker2"}, "worker2", AtBackward::kStop);
    auto pass =
        std::async(std::launch::async, [&] { return error_of([&] { loss.backward(context); }); });
    ASSERT_TRUE(eventually([&] { return self_.peer("worker2").call<&testgrad::has_stopped>(); }));
    children_[0]->signal(SIGKILL);
    // Long before its lease is over.
    ASSERT_EQ(pass.wait_for(std::chrono::minutes(1)), std::future_status::ready);
    const RpcError error = pass.get();
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_EQ(error.peer(), "worker1");
    EXPECT_EQ(error.execution(), sinew::Execution::kMayHaveRun);
    EXPECT_TRUE(sinew::autograd::gradients(context).empty());
    // It has been told, or has noticed, that nobody waits for its part.
    self_.peer("worker2").call<&testgrad::go_on>();
    for (const int rank : {0, 2}) EXPECT_EVENTUALLY(counter(rank, "autograd.passes"), 0);
  }
  for (const int rank : {0, 2}) EXPECT_EVENTUALLY(counter(rank, "autograd.contexts"), 0);
}

TEST_F(AutogradProcesses, ContextsEndWithTheirCreator) {
  self_.peer("worker3").call<&testgrad::keep_context>("worker1");
  EXPECT_EQ(counter(1, "autograd.contexts"), 1);
  EXPECT_EQ(counter(1, "autograd.sends"), 1);
  children_[2]->signal(SIGKILL);
  for (const char* name : {"contexts", "sends"}) {
    EXPECT_EVENTUALLY(counter(1, absl::StrCat("autograd.", name)), 0);
  }
}

}  // namespace
