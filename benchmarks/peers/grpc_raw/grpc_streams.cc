// What a stream of plain gRPC costs: a server-streaming method of its synchronous API, whose
// messages have 64 bytes, in a second process.

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include "echo.grpc.pb.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/server_process.h"

namespace sinew::bench {
namespace {

using grpc_raw::Echo;
using grpc_raw::Item;
using grpc_raw::ItemsRequest;

class StreamService final : public Echo::Service {
  grpc::Status Items(grpc::ServerContext*, const ItemsRequest* request,
                     grpc::ServerWriter<Item>* writer) override {
    Item item;
    item.set_bytes(std::string(64, 'x'));
    grpc::WriteOptions options;
    if (request->buffered()) options.set_buffer_hint();
    while (writer->Write(item, options)) {
    }
    return grpc::Status::OK;
  }
};

void serve(const ServerProcess::ReportPort& report_port) {
  StreamService service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) throw std::runtime_error("gRPC could not listen on a loopback port");
  report_port(static_cast<std::uint16_t>(port));
  server->Wait();
}

double rate_of(const Options& options, Echo::Stub& stub, bool buffered) {
  grpc::ClientContext context;
  ItemsRequest request;
  request.set_buffered(buffered);
  const auto reader = stub.Items(&context, request);
  Item item;
  const double rate = measure_rate(options, [&] {
    for (int i = 0; i < 1000; ++i) {
      if (!reader->Read(&item)) throw std::runtime_error("the stream ended");
    }
    return 1000;
  });
  context.TryCancel();
  while (reader->Read(&item)) {
  }
  reader->Finish();
  return rate;
}

void run(const Options& options) {
  const ServerProcess server(serve);
  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(server.port()),
                                           grpc::InsecureChannelCredentials());
  const std::unique_ptr<Echo::Stub> stub = Echo::NewStub(channel);
  if (options.wants("stream_items64_per_s")) {
    options.report("stream_items64_per_s", rate_of(options, *stub, false));
  }
  if (options.wants("stream_items64_buffered_per_s")) {
    options.report("stream_items64_buffered_per_s", rate_of(options, *stub, true));
  }
}

}  // namespace
}  // namespace sinew::bench

int main(int argc, char** argv) {
  const auto options = sinew::bench::parse_options(
      argc, argv, {"stream_items64_per_s", "stream_items64_buffered_per_s"});
  try {
    sinew::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
  return 0;
}
