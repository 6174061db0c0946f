// Sinew's own side of `tools/bench tensors`: tensors that are sent to another process of this host,
// and fetched from it.

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "ATen/ATen.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/server_process.h"
#include "sinew/benchmarks/tensor_transfers.h"
#include "sinew/sinew.h"

namespace bench {

/// Takes a tensor and drops it.
std::int64_t sink(const at::Tensor& tensor) { return tensor.numel(); }

at::Tensor make_tensor(std::int64_t bytes) {
  return at::ones(bytes / static_cast<std::int64_t>(sizeof(float)));
}

/// What fetch() returns. Callers wait for keep() before they fetch.
at::Tensor& kept() {
  static at::Tensor tensor;
  return tensor;
}
void keep(std::int64_t bytes) { kept() = make_tensor(bytes); }
at::Tensor fetch() { return kept(); }

}  // namespace bench

SINEW_METHOD(bench::sink);
SINEW_METHOD(bench::keep);
SINEW_METHOD(bench::fetch);

namespace {

using sinew::bench::Options;
using sinew::bench::ServerProcess;

sinew::Worker start_worker(int rank, std::uint16_t port, bool same_host) {
  sinew::WorkerOptions options;
  options.name = rank == 0 ? "server" : "client";
  options.methods.add<&bench::sink>().add<&bench::keep>().add<&bench::fetch>();
  options.init_method = "tcp://127.0.0.1:" + std::to_string(port);
  options.rank = rank;
  options.world_size = 2;
  options.same_host = same_host;
  // The server of the second plane waits until the first one has been measured.
  options.join_timeout = std::chrono::hours(1);
  return sinew::init_rpc(std::move(options));
}

/// The port must be known before the server starts: the client tries until it is there.
void serve(const ServerProcess::ReportPort& report, bool same_host) {
  sinew::bench::compute_on_one_thread();
  const std::uint16_t port = sinew::bench::free_loopback_port();
  report(port);
  const sinew::Worker worker = start_worker(0, port, same_host);
  sinew::ShutdownOptions with_the_client;
  with_the_client.timeout = std::chrono::hours(1);
  worker.shutdown(with_the_client);
  for (;;) pause();  // The client's process kills this one.
}

void measure(const Options& options, std::string_view plane, const ServerProcess& process) {
  const sinew::Worker worker = start_worker(1, process.port(), plane == sinew::bench::kSameHost);
  const sinew::Peer server = worker.peer("server");
  at::Tensor tensor;
  sinew::bench::measure_plane(
      options, plane,
      [&](std::int64_t bytes) {
        tensor = bench::make_tensor(bytes);
        sinew::rpc_sync<&bench::keep>(server, bytes);
      },
      [&] { sinew::rpc_sync<&bench::sink>(server, tensor); },
      [&] { sinew::rpc_sync<&bench::fetch>(server); });
  worker.shutdown();
}

int run(int argc, char** argv) {
  const Options options = sinew::bench::parse_options(argc, argv, sinew::bench::tensor_figures());
  // Both, before the first worker starts threads here.
  std::optional<ServerProcess> same_host;
  std::optional<ServerProcess> network;
  if (sinew::bench::wants_plane(options, sinew::bench::kSameHost)) {
    same_host.emplace([](const auto& report) { serve(report, true); });
  }
  if (sinew::bench::wants_plane(options, sinew::bench::kNetwork)) {
    network.emplace([](const auto& report) { serve(report, false); });
  }
  sinew::bench::compute_on_one_thread();
  if (same_host) measure(options, sinew::bench::kSameHost, *same_host);
  if (network) measure(options, sinew::bench::kNetwork, *network);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_tensors: %s\n", error.what());
    return 1;
  }
}
