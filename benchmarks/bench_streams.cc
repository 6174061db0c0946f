// Sinew's own side of `tools/bench streams`: streams between two processes over gRPC on loopback,
// and calls that bring the same.

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "ATen/ATen.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/server_process.h"
#include "sinew/rpc/rpc.h"
#include "sinew/streams/stream.h"

namespace bench {

constexpr std::int64_t kTensorBytes = 1 << 20;

at::Tensor& kept() {
  static at::Tensor tensor = at::ones(kTensorBytes / static_cast<std::int64_t>(sizeof(float)));
  return tensor;
}

/// Items of 64 bytes, until nobody reads any more.
sinew::Stream<std::string> items() {
  return sinew::write_stream<std::string>([](sinew::StreamWriter<std::string>& writer) {
    const std::string item(64, 'x');
    for (;;) writer.write(item);
  });
}

sinew::Stream<at::Tensor> tensors() {
  return sinew::write_stream<at::Tensor>([](sinew::StreamWriter<at::Tensor>& writer) {
    for (;;) writer.write(kept());
  });
}

at::Tensor tensor() { return kept(); }

}  // namespace bench

SINEW_METHOD(bench::items, bench::tensors, bench::tensor);

namespace {

using sinew::bench::measure_rate;
using sinew::bench::Options;

sinew::Worker start_worker(int rank, std::uint16_t port) {
  sinew::WorkerOptions options;
  options.name = rank == 0 ? "server" : "client";
  options.methods.add<&bench::items, &bench::tensors, &bench::tensor>();
  options.init_method = "tcp://127.0.0.1:" + std::to_string(port);
  options.rank = rank;
  options.world_size = 2;
  return sinew::init_rpc(std::move(options));
}

/// The port must be known before the server starts: the client tries until it is there.
void serve(const sinew::bench::ServerProcess::ReportPort& report) {
  sinew::bench::compute_on_one_thread();
  const std::uint16_t port = sinew::bench::free_loopback_port();
  report(port);
  const sinew::Worker worker = start_worker(0, port);
  sinew::ShutdownOptions with_the_client;
  with_the_client.timeout = std::chrono::hours(1);
  worker.shutdown(with_the_client);
  for (;;) pause();  // The client's process kills this one.
}

template <class T>
double rate_of(const Options& options, sinew::Stream<T> stream, std::int64_t at_once) {
  return measure_rate(options, [&] {
    for (std::int64_t i = 0; i < at_once; ++i) stream.next();
    return at_once;
  });
}

/// Of calls that bring a tensor, so many of which are under way.
double rate_of_calls(const Options& options, const sinew::Peer& server, std::size_t in_flight) {
  std::deque<sinew::Future<at::Tensor>> calls;
  const double rate = measure_rate(options, [&] {
    while (calls.size() < in_flight) calls.push_back(server.async<&bench::tensor>());
    calls.front().take();
    calls.pop_front();
    return 1;
  });
  for (auto& call : calls) call.take();
  return rate;
}

int run(int argc, char** argv) {
  const Options options =
      sinew::bench::parse_options(argc, argv,
                                  {"stream_items64_per_s", "stream_tensors1MiB_per_s",
                                   "calls8_tensors1MiB_per_s", "calls64_tensors1MiB_per_s"});
  const sinew::bench::ServerProcess process(&serve);
  sinew::bench::compute_on_one_thread();
  const sinew::Worker worker = start_worker(1, process.port());
  const sinew::Peer server = worker.peer("server").within(sinew::kNoTimeout);
  if (options.wants("stream_items64_per_s")) {
    options.report("stream_items64_per_s", rate_of(options, server.call<&bench::items>(), 1000));
  }
  if (options.wants("stream_tensors1MiB_per_s")) {
    options.report("stream_tensors1MiB_per_s", rate_of(options, server.call<&bench::tensors>(), 1));
  }
  if (options.wants("calls8_tensors1MiB_per_s")) {
    options.report("calls8_tensors1MiB_per_s", rate_of_calls(options, server, 8));
  }
  if (options.wants("calls64_tensors1MiB_per_s")) {
    options.report("calls64_tensors1MiB_per_s", rate_of_calls(options, server, 64));
  }
  worker.shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return sinew::bench::run_main("bench_streams", &run, argc, argv);
}
