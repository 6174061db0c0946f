// Clients hold no references, so the optimizers of a worker are not for them.

#include <string>

#include <gtest/gtest.h>

#include "sinew/rpc.pb.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/transport/grpc_fixture.h"

namespace {

absl::Status call(const sinew::Worker& worker, const sinew::proto::Call& call) {
  sinew::internal::Frame frame;
  frame.envelope = call.SerializeAsString();
  return sinew::internal::call_as_foreign_client(worker.address(), frame, std::chrono::seconds(30))
      .status();
}

TEST(OutsideOptim, ClientsReachNoOptimizer) {
  sinew::testing::ClusterOptions options;
  options.names = sinew::testing::worker_names(1);
  options.transport = sinew::testing::ClusterTransport::kGrpc;
  const sinew::testing::Cluster cluster(std::move(options));
  const auto services = sinew::WorkerAccess::services(cluster.worker(0));
  const auto methods = services->extension("optim")->methods();
  ASSERT_GT(methods.size(), 10u);
  for (const auto& method : methods) {
    SCOPED_TRACE(method.name);
    sinew::proto::Call without;
    without.set_method(std::string(method.name));
    EXPECT_EQ(call(cluster.worker(0), without).code(), absl::StatusCode::kInvalidArgument);
    sinew::proto::Call with = without;
    with.mutable_target()->mutable_rref()->set_serial(1);
    EXPECT_EQ(call(cluster.worker(0), with).code(), absl::StatusCode::kPermissionDenied);
  }
  EXPECT_EQ(cluster.worker(0).counters()["optim.optimizers"], 0);
}

}  // namespace
