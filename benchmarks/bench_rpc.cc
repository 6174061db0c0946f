// Sinew's own side of `tools/bench rpc`: calls and remote objects between two processes over gRPC
// on loopback.

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <string>

#include "sinew/benchmarks/actor_learner_rate.h"
#include "sinew/benchmarks/batcher_rate.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/noop.h"
#include "sinew/benchmarks/rl_rollout.h"
#include "sinew/benchmarks/server_process.h"
#include "sinew/sinew.h"

namespace bench {

class Holder {
 public:
  std::int64_t get() const { return value_; }

 private:
  std::int64_t value_ = 1;
};

/// Keeps 64 calls to `peer` in flight for a while; how many have ended.
std::int64_t keep_calling(const sinew::Peer& peer, std::chrono::milliseconds time) {
  std::deque<sinew::Future<std::int64_t>> in_flight;
  std::int64_t completions = 0;
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    while (in_flight.size() < sinew::bench::kCallsInFlight) {
      in_flight.push_back(peer.async<&bench::noop>());
    }
    do {
      in_flight.front().wait();
      in_flight.pop_front();
      ++completions;
    } while (!in_flight.empty() && in_flight.front().done());
  }
  for (const auto& call : in_flight) call.wait();
  return completions;
}

std::int64_t call_back(std::int64_t milliseconds) {
  const sinew::CallContext& call = sinew::CallContext::current();
  return keep_calling(call.worker().peer("client"), std::chrono::milliseconds(milliseconds));
}

}  // namespace bench

SINEW_METHOD(bench::call_back, bench::Holder::get);
SINEW_SERVICE(bench::Holder, ());

namespace {

using sinew::bench::measure_latency;
using sinew::bench::measure_rate;
using sinew::bench::Options;

sinew::Worker start_worker(int rank, std::uint16_t port) {
  sinew::WorkerOptions options;
  options.name = rank == 0 ? "server" : "client";
  options.methods.add<&bench::noop>()
      .add<&bench::call_back>()
      .add<&bench::Holder::get>()
      .serve<bench::Holder>();
  options.init_method = "tcp://127.0.0.1:" + std::to_string(port);
  options.rank = rank;
  options.world_size = 2;
  return sinew::init_rpc(std::move(options));
}

/// The server must know its port before it starts, and reports it before it listens: the client
/// tries until it is there.
void serve(const sinew::bench::ServerProcess::ReportPort& report) {
  const std::uint16_t port = sinew::bench::free_loopback_port();
  report(port);
  const sinew::Worker worker = start_worker(0, port);
  sinew::ShutdownOptions with_the_client;
  with_the_client.timeout = std::chrono::hours(1);
  worker.shutdown(with_the_client);
  for (;;) pause();  // The client's process kills this one.
}

void measure_calls(const Options& options, const sinew::Peer& server) {
  if (options.wants_any({"noop_sync_p50_us", "noop_sync_p99_us"})) {
    const auto latency =
        measure_latency(options.latency_calls(), [&] { server.call<&bench::noop>(); });
    options.report("noop_sync_p50_us", latency.p50_us);
    options.report("noop_sync_p99_us", latency.p99_us);
  }
  if (options.wants("noop_async64_per_s")) {
    std::deque<sinew::Future<std::int64_t>> in_flight;
    const double rate = measure_rate(options, [&] {
      while (in_flight.size() < sinew::bench::kCallsInFlight) {
        in_flight.push_back(server.async<&bench::noop>());
      }
      std::int64_t completions = 0;
      do {
        in_flight.front().wait();
        in_flight.pop_front();
        ++completions;
      } while (!in_flight.empty() && in_flight.front().done());
      return completions;
    });
    options.report("noop_async64_per_s", rate);
    for (const auto& call : in_flight) call.wait();
  }
  if (options.wants("both_ways_async64_per_s")) {
    const auto calls_in = [&](std::chrono::milliseconds time) {
      const auto theirs = server.async<&bench::call_back>(time.count());
      const std::int64_t ours = bench::keep_calling(server, time);
      return ours + theirs.wait();
    };
    calls_in(options.rate_warm_up());
    const double seconds = std::chrono::duration<double>(options.rate_window()).count();
    options.report("both_ways_async64_per_s",
                   static_cast<double>(calls_in(options.rate_window())) / seconds);
  }
}

void measure_references(const Options& options, const sinew::Peer& server) {
  if (options.wants("remote_first_method_p50_us")) {
    const auto latency = measure_latency(options.latency_calls(), [&] {
      (server.remote<bench::Holder>()).call<&bench::Holder::get>();
    });
    options.report("remote_first_method_p50_us", latency.p50_us);
  }
  if (options.wants("rref_method_p50_us")) {
    const auto holder = server.remote<bench::Holder>();
    const auto latency =
        measure_latency(options.latency_calls(), [&] { holder.call<&bench::Holder::get>(); });
    options.report("rref_method_p50_us", latency.p50_us);
  }
}

int run(int argc, char** argv) {
  const Options options = sinew::bench::parse_options(
      argc, argv,
      {"wake_up_us", "noop_sync_p50_us", "noop_sync_p99_us", "noop_async64_per_s",
       "both_ways_async64_per_s", "remote_first_method_p50_us", "rref_method_p50_us",
       "rl_steps_per_s_1", "rl_steps_per_s_4", "rl_batched_steps_per_s_4",
       "rl_vector_steps_per_s_4", sinew::bench::kActorLearnerFigure, "batcher_calls_per_s_1",
       "batcher_calls_per_s_4", "batcher_calls_per_s_8"});
  // First: their processes are forked from this one, which must have no threads then.
  sinew::bench::measure_actor_learner(options);
  sinew::bench::measure_batches(options);
  sinew::bench::measure_rollouts(options);
  if (options.wants_any({"wake_up_us", "noop_sync_p50_us", "noop_sync_p99_us", "noop_async64_per_s",
                         "both_ways_async64_per_s", "remote_first_method_p50_us",
                         "rref_method_p50_us"})) {
    const sinew::bench::ServerProcess server(&serve);
    const sinew::Worker worker = start_worker(1, server.port());
    measure_calls(options, worker.peer("server"));
    measure_references(options, worker.peer("server"));
    if (options.wants("wake_up_us")) {
      const std::int64_t price = worker.counters().at("rpc.wake_up_ns");
      options.report("wake_up_us", static_cast<double>(price) / 1000);
    }
    worker.shutdown();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return sinew::bench::run_main("bench_rpc", &run, argc, argv); }
