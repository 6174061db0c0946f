// What Cap'n Proto RPC costs: one event loop in each of two processes, the two-party protocol
// between.

#include <capnp/ez-rpc.h>
#include <kj/async.h>
#include <kj/exception.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>

#include "echo.capnp.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/server_process.h"

namespace sinew::bench {
namespace {

using schema::Echo;
using schema::Holder;

class HolderServer final : public Holder::Server {
  kj::Promise<void> get(GetContext context) override {
    context.getResults().setValue(1);
    return kj::READY_NOW;
  }
};

class EchoServer final : public Echo::Server {
  kj::Promise<void> noop(NoopContext) override { return kj::READY_NOW; }

  kj::Promise<void> make(MakeContext context) override {
    context.getResults().setHolder(kj::heap<HolderServer>());
    return kj::READY_NOW;
  }
};

void serve(const ServerProcess::ReportPort& report_port) {
  capnp::EzRpcServer server(kj::heap<EchoServer>(), "127.0.0.1:0");
  report_port(static_cast<std::uint16_t>(server.getPort().wait(server.getWaitScope())));
  kj::NEVER_DONE.wait(server.getWaitScope());
}

/// Waits for the oldest call and sends a new one in its place, so the window is always full.
double measure_noop_async(const Options& options, Echo::Client echo, kj::WaitScope& wait_scope) {
  std::deque<kj::Promise<void>> in_flight;
  for (int i = 0; i < kCallsInFlight; ++i) {
    in_flight.push_back(echo.noopRequest().send().ignoreResult());
  }
  const double calls_per_s = measure_rate(options, [&] {
    in_flight.front().wait(wait_scope);
    in_flight.pop_front();
    in_flight.push_back(echo.noopRequest().send().ignoreResult());
    return 1;
  });
  for (kj::Promise<void>& call : in_flight) {
    call.wait(wait_scope);
  }
  return calls_per_s;
}

void run(const Options& options) {
  const ServerProcess server(serve);
  capnp::EzRpcClient client("127.0.0.1", server.port());
  kj::WaitScope& wait_scope = client.getWaitScope();
  Echo::Client echo = client.getMain<Echo>();

  if (options.wants_any({"noop_sync_p50_us", "noop_sync_p99_us"})) {
    const Latency latency = measure_latency(options.latency_calls(),
                                            [&] { echo.noopRequest().send().wait(wait_scope); });
    options.report("noop_sync_p50_us", latency.p50_us);
    options.report("noop_sync_p99_us", latency.p99_us);
  }
  if (options.wants("noop_async64_per_s")) {
    options.report("noop_async64_per_s", measure_noop_async(options, echo, wait_scope));
  }
  if (options.wants("remote_first_method_p50_us")) {
    // Pipelined: the second call names the object before the first call has returned it.
    const Latency latency = measure_latency(options.latency_calls(), [&] {
      echo.makeRequest().send().getHolder().getRequest().send().wait(wait_scope);
    });
    options.report("remote_first_method_p50_us", latency.p50_us);
  }
  if (options.wants("rref_method_p50_us")) {
    Holder::Client holder = echo.makeRequest().send().wait(wait_scope).getHolder();
    const Latency latency = measure_latency(options.latency_calls(),
                                            [&] { holder.getRequest().send().wait(wait_scope); });
    options.report("rref_method_p50_us", latency.p50_us);
  }
}

}  // namespace
}  // namespace sinew::bench

int main(int argc, char** argv) {
  const auto options =
      sinew::bench::parse_options(argc, argv,
                                  {"noop_sync_p50_us", "noop_sync_p99_us", "noop_async64_per_s",
                                   "remote_first_method_p50_us", "rref_method_p50_us"});
  try {
    sinew::bench::run(options);
  } catch (const kj::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.getDescription().cStr());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
  return 0;
}
