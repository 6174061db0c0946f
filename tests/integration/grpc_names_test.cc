// Certificates that prove names alone, as they do where addresses are given by whoever runs
// containers: workers also ask each other at their addresses.

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rpc/worker/worker_links.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/support/cluster.h"

using namespace std::chrono_literals;

namespace {

TEST(CertificatesOfNames, MembersAskEachOtherAtTheirAddresses) {
  sinew::testing::Certificates certificates;
  sinew::testing::ClusterOptions options;
  options.names = sinew::testing::worker_names(3);
  options.transport = sinew::testing::ClusterTransport::kGrpc;
  options.methods = testapp::methods();
  options.tweak = [&](int rank, sinew::WorkerOptions& worker) {
    // The founder is looked for at its address, before anybody knows its name.
    const std::string names = rank == 0 ? "" : "DNS:" + worker.name;
    worker.credentials = sinew::Credentials::mutual_tls(certificates.issue(worker.name, names));
  };
  sinew::testing::Cluster cluster(std::move(options));
  for (const int asked : {1, 2}) {
    auto& links = sinew::WorkerAccess::core(cluster.worker(0))->links();
    const auto answer = links.ask_address({cluster.worker(asked).address(), ""}, {}).wait_for(60s);
    EXPECT_EQ(answer.worker.incarnation, cluster.worker(asked).info().incarnation);
  }
  cluster.shutdown();
}

}  // namespace
