// Tensors between processes by UCX. The test is a worker itself, named "test".

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/process/tensor_methods.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::Worker;
using sinew::testing::ChildProcess;
using sinew::testing::error_of;
using sinew::testing::eventually;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

namespace {

class Ucx : public ::testing::Test {
 protected:
  void TearDown() override {
    if (self_.valid()) self_.shutdown({false, 60s, false});
  }
  sinew::WorkerOptions options() const {
    sinew::WorkerOptions options;
    options.name = "test";
    options.methods = testapp::methods();
    options.methods.add<&testapp::negated>();
    options.init_method = "file://" + folder_.file("meet");
    options.same_host = false;
    options.ucx = true;
    return options;
  }
  std::unique_ptr<ChildProcess> spawn(const std::string& name) {
    auto child = std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
    const std::string answer = child->ask(absl::StrCat("start name=", name, " init=file://",
                                                       folder_.file("meet"), " same_host=0 ucx=1"));
    EXPECT_THAT(answer, StartsWith("ok "));
    return child;
  }
  void negate_at(const std::string& peer, std::int64_t size) {
    const at::Tensor tensor = at::arange(size, at::kFloat);
    const auto result = self_.peer(peer).call<&testapp::negated>(tensor);
    EXPECT_TRUE(at::equal(result, -tensor));
  }
  std::int64_t counter(const std::string& name) const { return self_.counters()[name]; }
  /// Calls until the answers come by UCX: the ends find out about it after they are connected.
  void warm_up(const std::string& peer) {
    EXPECT_TRUE(eventually([&] {
      negate_at(peer, 100'000);
      return counter("rpc.plane_fetched_tensors") > 0 &&
             self_.peer(peer).call<&testapp::counter_value>("rpc.plane_fetched_tensors") > 0;
    }));
  }

  const sinew::testing::TemporaryFolder folder_;
  Worker self_;
};

TEST_F(Ucx, TensorsGoBothWays) {
  self_ = sinew::init_rpc(options());
  const auto child = spawn("a");
  warm_up("a");
  const std::int64_t before = counter("rpc.plane_fetched_tensors");
  for (const std::int64_t size : {20'000, 300'000, 4'000'000}) negate_at("a", size);
  EXPECT_EQ(counter("rpc.plane_fetched_tensors"), before + 3);
  EXPECT_EQ(counter("rpc.plane_failures"), 0);
}

TEST_F(Ucx, AKilledPeerFailsItsCallsAndNoOthers) {
  self_ = sinew::init_rpc(options());
  const auto killed = spawn("a");
  const auto other = spawn("b");
  warm_up("a");
  warm_up("b");
  const at::Tensor large = at::ones({8'000'000}, at::kFloat);
  std::vector<sinew::Future<at::Tensor>> calls;
  for (int i = 0; i < 6; ++i) {
    calls.push_back(self_.peer("a").async<&testapp::negated>(large));
  }
  calls.front().wait();
  killed->signal(SIGKILL);
  for (sinew::Future<at::Tensor>& call : calls) {
    try {
      EXPECT_TRUE(at::equal(call.wait(), -large));
    } catch (const RpcError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    }
  }
  negate_at("b", 4'000'000);
}

TEST_F(Ucx, IsRefusedWithTls) {
  sinew::WorkerOptions tls = options();
  tls.credentials = sinew::Credentials::tls(sinew::TlsFiles{"ca.pem", "worker.pem", "worker.key"});
  const RpcError error = error_of([&] { sinew::init_rpc(tls); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("WorkerOptions::ucx sends tensors in the clear"));
}

}  // namespace
