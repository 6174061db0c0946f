// Sinew's own side of `tools/bench tensors`: tensors that are sent to another process of this host,
// and fetched from it.

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/own_certificate.h"
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

SINEW_METHOD(bench::sink, bench::keep, bench::fetch);

namespace {

using sinew::bench::Options;
using sinew::bench::ServerProcess;

/// How the two workers may talk.
struct Plane {
  std::string_view name;
  bool same_host = false;
  std::optional<sinew::Credentials> credentials;
};

sinew::Worker start_worker(int rank, std::uint16_t port, const Plane& plane) {
  sinew::WorkerOptions options;
  options.name = rank == 0 ? "server" : "client";
  options.methods.add<&bench::sink>().add<&bench::keep>().add<&bench::fetch>();
  options.init_method = "tcp://127.0.0.1:" + std::to_string(port);
  options.rank = rank;
  options.world_size = 2;
  options.same_host = plane.same_host;
  if (plane.credentials) options.credentials = *plane.credentials;
  // The servers of the other planes wait until the first one has been measured.
  options.join_timeout = std::chrono::hours(1);
  return sinew::init_rpc(std::move(options));
}

/// The port must be known before the server starts: the client tries until it is there.
void serve(const ServerProcess::ReportPort& report, const Plane& plane) {
  sinew::bench::compute_on_one_thread();
  const std::uint16_t port = sinew::bench::free_loopback_port();
  report(port);
  const sinew::Worker worker = start_worker(0, port, plane);
  sinew::ShutdownOptions with_the_client;
  with_the_client.timeout = std::chrono::hours(1);
  worker.shutdown(with_the_client);
  for (;;) pause();  // The client's process kills this one.
}

void measure(const Options& options, const Plane& plane, const ServerProcess& process) {
  const sinew::Worker worker = start_worker(1, process.port(), plane);
  const sinew::Peer server = worker.peer("server");
  at::Tensor tensor;
  sinew::bench::measure_plane(
      options, plane.name,
      [&](std::int64_t bytes) {
        tensor = bench::make_tensor(bytes);
        server.call<&bench::keep>(bytes);
      },
      [&] { server.call<&bench::sink>(tensor); }, [&] { server.call<&bench::fetch>(); });
  worker.shutdown();
}

std::vector<Plane> wanted_planes(const Options& options) {
  std::vector<Plane> planes;
  if (wants_plane(options, sinew::bench::kSameHost)) {
    planes.push_back({sinew::bench::kSameHost, true, std::nullopt});
  }
  if (wants_plane(options, sinew::bench::kNetwork)) {
    planes.push_back({sinew::bench::kNetwork, false, std::nullopt});
  }
  if (wants_plane(options, sinew::bench::kTls)) {
    planes.push_back({sinew::bench::kTls, false, sinew::bench::own_certificate()});
  }
  return planes;
}

int run(int argc, char** argv) {
  std::vector<std::string> figures = sinew::bench::tensor_figures();
  const std::vector<std::string> with_tls = sinew::bench::plane_figures(sinew::bench::kTls);
  figures.insert(figures.end(), with_tls.begin(), with_tls.end());
  const Options options = sinew::bench::parse_options(argc, argv, figures);
  const std::vector<Plane> planes = wanted_planes(options);
  // All of them before the first worker starts threads here.
  std::deque<ServerProcess> servers;
  for (const Plane& plane : planes) {
    servers.emplace_back([&plane](const auto& report) { serve(report, plane); });
  }
  sinew::bench::compute_on_one_thread();
  for (std::size_t i = 0; i < planes.size(); ++i) measure(options, planes[i], servers[i]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return sinew::bench::run_main("bench_tensors", &run, argc, argv);
}
