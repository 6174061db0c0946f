// Tensors as Cap'n Proto's Data, in the two-party protocol: one event loop in each of two
// processes. A Data value ends below 512 MiB, so the largest figure is left out.

#include <capnp/ez-rpc.h>
#include <capnp/message.h>
#include <kj/async.h>
#include <kj/exception.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "blobs.capnp.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/server_process.h"
#include "sinew/benchmarks/tensor_transfers.h"

namespace sinew::bench {
namespace {

using schema::Blobs;

constexpr std::int64_t kMostBytes = (std::int64_t{1} << 29) - 1;

capnp::ReaderOptions without_limit() {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = std::numeric_limits<std::uint64_t>::max() / 2;
  return options;
}

/// What is received is used where it lies, in the message.
class BlobsServer final : public Blobs::Server {
  kj::Promise<void> store(StoreContext context) override {
    context.getResults().setBytes(context.getParams().getData().size());
    return kj::READY_NOW;
  }

  kj::Promise<void> keep(KeepContext context) override {
    kept_.assign(context.getParams().getBytes(), 1);
    return kj::READY_NOW;
  }

  kj::Promise<void> load(LoadContext context) override {
    context.initResults(capnp::MessageSize{kept_.size() / 8 + 64, 0})
        .setData(kj::arrayPtr(kept_.data(), kept_.size()));
    return kj::READY_NOW;
  }

  std::vector<kj::byte> kept_;
};

std::string local_address(std::uint16_t port) {
  return "unix-abstract:sinew-capnp-tensors-" + std::to_string(port);
}

std::string network_address(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

void serve(const ServerProcess::ReportPort& report_port) {
  const std::uint16_t port = free_loopback_port();
  capnp::EzRpcServer local(kj::heap<BlobsServer>(), local_address(port), 0, without_limit());
  capnp::EzRpcServer network(kj::heap<BlobsServer>(), network_address(port), 0, without_limit());
  network.getPort().wait(network.getWaitScope());  // it listens from here on
  report_port(port);
  kj::NEVER_DONE.wait(network.getWaitScope());
}

void measure(const Options& options, std::string_view plane, const std::string& address) {
  capnp::EzRpcClient client(address, 0, without_limit());
  kj::WaitScope& wait_scope = client.getWaitScope();
  Blobs::Client blobs = client.getMain<Blobs>();
  std::vector<kj::byte> tensor;
  measure_plane(
      options, plane,
      [&](std::int64_t bytes) {
        tensor.assign(static_cast<std::size_t>(bytes), 2);
        auto request = blobs.keepRequest();
        request.setBytes(static_cast<std::uint64_t>(bytes));
        request.send().wait(wait_scope);
      },
      [&] {
        // With the size known in advance the message is one allocation.
        auto request = blobs.storeRequest(capnp::MessageSize{tensor.size() / 8 + 64, 0});
        request.setData(kj::arrayPtr(tensor.data(), tensor.size()));
        request.send().wait(wait_scope);
      },
      [&] { blobs.loadRequest().send().wait(wait_scope).getData(); });
}

void run(const Options& options) {
  const ServerProcess server(serve);
  if (wants_plane(options, kSameHost)) measure(options, kSameHost, local_address(server.port()));
  if (wants_plane(options, kNetwork)) measure(options, kNetwork, network_address(server.port()));
}

}  // namespace
}  // namespace sinew::bench

int main(int argc, char** argv) {
  const auto options = sinew::bench::parse_options(
      argc, argv, sinew::bench::tensor_figures(sinew::bench::kMostBytes));
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
