// What takes the current worker where none is given.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "ATen/ATen.h"
#include "sinew/groups/store.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"

namespace here {

class Net {
 public:
  Net() : weight_(at::ones({2}).requires_grad_()) {}
  at::Tensor forward(const at::Tensor& input) { return input * weight_; }
  std::vector<at::Tensor> parameters() const { return {weight_}; }
  void train(bool) {}
  void to(c10::Device) {}

 private:
  at::Tensor weight_;
};

std::string name() { return sinew::current_worker().name(); }
std::string owner() { return sinew::make_rref(1).owner_name(); }

}  // namespace here

SINEW_MODULE(here::Net, ());
SINEW_METHOD(here::name, here::owner);

namespace sinew {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

MethodTable table() { return sinew::serve<here::Net>().add<&here::name, &here::owner>(); }

class CurrentWorkerTest : public testing::ClusterTest {};
SINEW_INSTANTIATE_CLUSTER_TEST(CurrentWorkerTest);

TEST_P(CurrentWorkerTest, IsTheOneWhoseHandlerRuns) {
  start(2, table());
  EXPECT_EQ(worker(0).peer(0).call<&here::name>(), "worker0");
  EXPECT_EQ(worker(0).peer(1).call<&here::name>(), "worker1");
  EXPECT_EQ(worker(0).peer(1).call<&here::owner>(), "worker1");
}

TEST_P(CurrentWorkerTest, ElsewhereItIsTheOnlyOne) {
  start(1, table());
  EXPECT_EQ(current_worker(), worker(0));
  EXPECT_EQ(make_rref(1).owner_name(), "worker0");
  EXPECT_EQ(share_rref(std::make_shared<int>(1)).owner_name(), "worker0");

  const RemoteModule<here::Net> net("worker0");
  const RemoteModule<here::Net> at_peer(current_worker().peer(0));
  optim::SgdOptions rate_of_one;
  rate_of_one.lr = 1;
  const optim::DistributedOptimizer optimizer(net.remote_parameters(), rate_of_one);
  EXPECT_EQ(parameter_rrefs(here::Net()).front().owner_name(), "worker0");
  {
    const autograd::Context context;
    const at::Tensor loss = net.forward(at::ones({2})).sum();
    autograd::backward(context.id(), {loss});
    EXPECT_EQ(autograd::gradients(context.id()).size(), 1u);
    optimizer.step(context);
  }
  EXPECT_TRUE(net.forward(at::ones({2})).equal(at::zeros({2})));
  EXPECT_TRUE(at_peer.forward(at::ones({2})).equal(at::ones({2})));

  optim::serve_checkpoints(std::filesystem::temp_directory_path().string());
  Store::over().set("key", "value");
  EXPECT_EQ(Store::over(worker(0)).get("key"), "value");
}

TEST_P(CurrentWorkerTest, IsNoneOfSeveral) {
  start(2, table());
  const RpcError error = error_of([] { make_rref(1); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("'worker0', 'worker1'"), HasSubstr("say which")));
  EXPECT_EQ(error_of([] { autograd::Context context; }).code(), ErrorCode::kFailedPrecondition);

  ShutdownOptions at_once;
  at_once.graceful = false;
  worker(1).shutdown(at_once);
  EXPECT_EQ(current_worker(), worker(0));
  abandon();
}

TEST(CurrentWorkerOfNoneTest, IsAnError) {
  const RpcError error = error_of([] { current_worker(); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("start one with sinew::init_rpc()"));
}

}  // namespace
}  // namespace sinew
