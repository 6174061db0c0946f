// Tensors over plain gRPC, as one who knows it well would send them: small ones in a unary call,
// large ones as a stream of chunks into memory that is there already.

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include "blobs.grpc.pb.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/server_process.h"
#include "sinew/benchmarks/tensor_transfers.h"

namespace sinew::bench {
namespace {

using grpc_raw::Blobs;
using grpc_raw::Chunk;
using grpc_raw::KeepRequest;
using grpc_raw::Kept;
using grpc_raw::LoadRequest;
using grpc_raw::Stored;

/// A larger tensor goes as a stream. With 64 KiB one message took half the time of a stream; from
/// 16 MiB up it fell to a fourth of the speed, because gRPC and protobuf then hold and copy it
/// whole.
constexpr std::size_t kUnaryBytes = std::size_t{64} << 10;
constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
/// gRPC cuts messages into 16 KiB by default. With this a stream was faster by half; chunks and
/// frames of four times these sizes were slower again.
constexpr int kFrameBytes = 1 << 20;
constexpr char kReadChunkSize[] = "grpc.experimental.tcp_read_chunk_size";

std::string local_address(std::uint16_t port) {
  return "unix-abstract:sinew-grpc-tensors-" + std::to_string(port);
}

std::string network_address(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

/// Appends the chunks of a stream to `tensor`, whose memory is there already.
template <class Stream>
void read_chunks(Stream& stream, std::string& tensor) {
  Chunk chunk;
  std::size_t at = 0;
  while (stream.Read(&chunk)) {
    if (chunk.data().size() > tensor.size() - at) break;
    std::memcpy(tensor.data() + at, chunk.data().data(), chunk.data().size());
    at += chunk.data().size();
  }
  if (at != tensor.size()) throw std::runtime_error("a stream has another size than its tensor");
}

template <class Stream>
void write_chunks(Stream& stream, const std::string& tensor) {
  Chunk chunk;
  for (std::size_t at = 0; at < tensor.size(); at += kChunkBytes) {
    chunk.mutable_data()->assign(tensor, at, kChunkBytes);
    if (!stream.Write(chunk)) break;
  }
}

class BlobsService final : public Blobs::Service {
  grpc::Status Store(grpc::ServerContext*, const Chunk*, Stored*) override {
    return grpc::Status::OK;
  }

  grpc::Status StoreStream(grpc::ServerContext*, grpc::ServerReader<Chunk>* stream,
                           Stored*) override {
    read_chunks(*stream, kept_);
    return grpc::Status::OK;
  }

  grpc::Status Keep(grpc::ServerContext*, const KeepRequest* request, Kept*) override {
    kept_.assign(request->bytes(), 'x');
    return grpc::Status::OK;
  }

  grpc::Status Load(grpc::ServerContext*, const LoadRequest*, Chunk* chunk) override {
    chunk->set_data(kept_);
    return grpc::Status::OK;
  }

  grpc::Status LoadStream(grpc::ServerContext*, const LoadRequest*,
                          grpc::ServerWriter<Chunk>* stream) override {
    write_chunks(*stream, kept_);
    return grpc::Status::OK;
  }

  std::string kept_;
};

void serve(const ServerProcess::ReportPort& report_port) {
  const std::uint16_t port = free_loopback_port();
  BlobsService service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(local_address(port), grpc::InsecureServerCredentials());
  builder.AddListeningPort(network_address(port), grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder.AddChannelArgument(kReadChunkSize, kFrameBytes);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) throw std::runtime_error("gRPC could not listen");
  report_port(port);
  server->Wait();
}

void throw_if_failed(const grpc::Status& status) {
  if (!status.ok()) {
    throw std::runtime_error("a call failed with code " + std::to_string(status.error_code()) +
                             ": " + status.error_message());
  }
}

void push(Blobs::Stub& stub, const std::string& tensor) {
  grpc::ClientContext context;
  Stored stored;
  if (tensor.size() <= kUnaryBytes) {
    Chunk chunk;
    chunk.set_data(tensor);
    throw_if_failed(stub.Store(&context, chunk, &stored));
    return;
  }
  const auto stream = stub.StoreStream(&context, &stored);
  write_chunks(*stream, tensor);
  stream->WritesDone();
  throw_if_failed(stream->Finish());
}

void pull(Blobs::Stub& stub, std::string& tensor) {
  grpc::ClientContext context;
  if (tensor.size() <= kUnaryBytes) {
    Chunk chunk;
    throw_if_failed(stub.Load(&context, LoadRequest(), &chunk));
    return;
  }
  const auto stream = stub.LoadStream(&context, LoadRequest());
  read_chunks(*stream, tensor);
  throw_if_failed(stream->Finish());
}

void measure(const Options& options, std::string_view plane, const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  arguments.SetInt(kReadChunkSize, kFrameBytes);
  const std::unique_ptr<Blobs::Stub> stub = Blobs::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  std::string tensor;
  measure_plane(
      options, plane,
      [&](std::int64_t bytes) {
        tensor.assign(static_cast<std::size_t>(bytes), 'x');
        grpc::ClientContext context;
        KeepRequest request;
        request.set_bytes(static_cast<std::uint64_t>(bytes));
        Kept kept;
        throw_if_failed(stub->Keep(&context, request, &kept));
      },
      [&] { push(*stub, tensor); }, [&] { pull(*stub, tensor); });
}

void run(const Options& options) {
  const ServerProcess server(serve);
  if (wants_plane(options, kSameHost)) measure(options, kSameHost, local_address(server.port()));
  if (wants_plane(options, kNetwork)) measure(options, kNetwork, network_address(server.port()));
}

}  // namespace
}  // namespace sinew::bench

int main(int argc, char** argv) {
  const auto options = sinew::bench::parse_options(argc, argv, sinew::bench::tensor_figures());
  try {
    sinew::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
  return 0;
}
