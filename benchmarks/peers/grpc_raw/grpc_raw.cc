// What plain gRPC costs: one unary method, answered inline by the callback API in a second process.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "echo.grpc.pb.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/server_process.h"

namespace sinew::bench {
namespace {

using grpc_raw::Echo;
using grpc_raw::NoopRequest;
using grpc_raw::NoopResponse;

class EchoService final : public Echo::CallbackService {
  grpc::ServerUnaryReactor* Noop(grpc::CallbackServerContext* context, const NoopRequest*,
                                 NoopResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

void serve(const ServerProcess::ReportPort& report_port) {
  EchoService service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    throw std::runtime_error("gRPC could not listen on a loopback port");
  }
  report_port(static_cast<std::uint16_t>(port));
  server->Wait();
}

void throw_if_failed(const grpc::Status& status) {
  if (!status.ok()) {
    throw std::runtime_error("a call failed with code " + std::to_string(status.error_code()) +
                             ": " + status.error_message());
  }
}

void call_noop(Echo::Stub* stub) {
  grpc::ClientContext context;
  NoopRequest request;
  NoopResponse response;
  throw_if_failed(stub->Noop(&context, request, &response));
}

/// Keeps a fixed number of calls in flight: each completion starts the next call on gRPC's own
/// thread.
class CallLoop {
 public:
  CallLoop(Echo::Stub* stub, int calls_in_flight)
      : stub_(stub), slots_(static_cast<std::size_t>(calls_in_flight)) {}

  void start() {
    in_flight_ = static_cast<int>(slots_.size());
    for (Slot& slot : slots_) {
      issue(&slot);
    }
  }

  std::int64_t completed() const { return completed_.load(std::memory_order_relaxed); }

  /// Starts no more calls and waits for those in flight. Throws if any call failed.
  void stop() {
    std::unique_lock<std::mutex> lock(mutex_);
    stopping_ = true;
    drained_.wait(lock, [this] { return in_flight_ == 0; });
    throw_if_failed(failure_);
  }

 private:
  struct Slot {
    std::optional<grpc::ClientContext> context;
    NoopRequest request;
    NoopResponse response;
  };

  void issue(Slot* slot) {
    slot->context.emplace();
    stub_->async()->Noop(&*slot->context, &slot->request, &slot->response,
                         [this, slot](grpc::Status status) { on_done(slot, status); });
  }

  void on_done(Slot* slot, const grpc::Status& status) {
    completed_.fetch_add(1, std::memory_order_relaxed);
    if (status.ok() && !stopping_.load(std::memory_order_relaxed)) {
      issue(slot);
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok()) {
      failure_ = status;
    }
    --in_flight_;
    drained_.notify_one();
  }

  // Constant after construction; each slot belongs to the call that runs in it.
  Echo::Stub* const stub_;
  std::vector<Slot> slots_;

  std::atomic<std::int64_t> completed_{0};
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;
  std::condition_variable drained_;
  // Guarded by mutex_.
  int in_flight_ = 0;
  grpc::Status failure_;
};

double measure_noop_async(const Options& options, Echo::Stub* stub) {
  CallLoop loop(stub, kCallsInFlight);
  loop.start();
  std::int64_t seen = 0;
  const double calls_per_s = measure_rate(options, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::int64_t completed = loop.completed();
    return completed - std::exchange(seen, completed);
  });
  loop.stop();
  return calls_per_s;
}

void run(const Options& options) {
  const ServerProcess server(serve);
  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(server.port()),
                                           grpc::InsecureChannelCredentials());
  const std::unique_ptr<Echo::Stub> stub = Echo::NewStub(channel);

  if (options.wants_any({"noop_sync_p50_us", "noop_sync_p99_us"})) {
    const Latency latency =
        measure_latency(options.latency_calls(), [&] { call_noop(stub.get()); });
    options.report("noop_sync_p50_us", latency.p50_us);
    options.report("noop_sync_p99_us", latency.p99_us);
  }
  if (options.wants("noop_async64_per_s")) {
    options.report("noop_async64_per_s", measure_noop_async(options, stub.get()));
  }
}

}  // namespace
}  // namespace sinew::bench

int main(int argc, char** argv) {
  const auto options = sinew::bench::parse_options(
      argc, argv, {"noop_sync_p50_us", "noop_sync_p99_us", "noop_async64_per_s"});
  try {
    sinew::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
  return 0;
}
