#include "sinew/tests/support/cluster.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/worker/worker_parts.h"

namespace sinew::testing {

void wrap_transports(ClusterOptions& options, std::function<std::unique_ptr<internal::Transport>(
                                                  int rank, std::unique_ptr<internal::Transport>)>
                                                  wrap) {
  options.tweak = [wrap = std::move(wrap), tweak = std::move(options.tweak)](
                      int rank, WorkerOptions& worker) {
    internal::parts_of(worker).wrap_transport =
        [wrap, rank](std::unique_ptr<internal::Transport> transport) {
          return wrap(rank, std::move(transport));
        };
    if (tweak) tweak(rank, worker);
  };
}

Cluster& ClusterTest::start(int size, MethodTable methods,
                            std::function<void(int rank, WorkerOptions& options)> tweak) {
  ClusterOptions options;
  options.names = worker_names(size);
  options.methods = std::move(methods);
  options.tweak = std::move(tweak);
  return start(std::move(options));
}

Cluster& ClusterTest::start(ClusterOptions options) {
  finish();
  options.transport = GetParam();
  cluster_ = std::make_unique<Cluster>(std::move(options));
  return *cluster_;
}

void ClusterTest::replace(int rank, Worker worker) {
  cluster_->replace(absl::StrCat("worker", rank), std::move(worker));
}

void ClusterTest::finish() {
  if (cluster_ == nullptr) return;
  const std::vector<std::string> failures = cluster_->try_shutdown();
  EXPECT_TRUE(failures.empty()) << absl::StrJoin(failures, "\n");
  cluster_.reset();
}

std::vector<ClusterTransport> cluster_transports() {
#ifdef __SANITIZE_THREAD__
  return {ClusterTransport::kInproc};
#else
  return {ClusterTransport::kInproc, ClusterTransport::kGrpc};
#endif
}

std::string cluster_transport_name(const ::testing::TestParamInfo<ClusterTransport>& info) {
  return info.param == ClusterTransport::kInproc ? "Inproc" : "Grpc";
}

}  // namespace sinew::testing
