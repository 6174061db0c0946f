// Asks a worker by the gRPC health service how it is: for health checks of containers and for
// whoever watches a job. It needs gRPC, and nothing of Sinew, so it answers for whatever listens
// there.

#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "grpcpp/completion_queue.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/channel_arguments.h"

namespace {

enum ExitStatus { kServing = 0, kNotServing = 1, kUsageError = 2, kUnreachable = 3 };

struct Options {
  std::string address;
  double timeout_s = 5;
  std::string ca;
  std::string certificate;
  std::string key;
  std::string server_name;
};

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) {
    std::cerr << "sinew-health: '" << path << "' cannot be read, or is empty\n";
    return std::nullopt;
  }
  return text.str();
}

// Null: a file could not be read.
std::shared_ptr<grpc::ChannelCredentials> credentials_of(const Options& options) {
  if (options.ca.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions tls;
  const auto ca = read_file(options.ca);
  if (!ca) return nullptr;
  tls.pem_root_certs = *ca;
  if (!options.certificate.empty()) {
    const auto certificate = read_file(options.certificate);
    const auto key = read_file(options.key);
    if (!certificate || !key) return nullptr;
    tls.pem_cert_chain = *certificate;
    tls.pem_private_key = *key;
  }
  return grpc::SslCredentials(tls);
}

// HealthCheckResponse{SERVING}: field 1, a varint, is 1. An empty request asks for the server.
bool says_serving(const grpc::ByteBuffer& response) {
  std::vector<grpc::Slice> slices;
  if (!response.Dump(&slices).ok()) return false;
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes == "\x08\x01";
}

ExitStatus probe(const Options& options) {
  const auto credentials = credentials_of(options);
  if (credentials == nullptr) return kUsageError;
  grpc::ChannelArguments arguments;
  if (!options.server_name.empty()) arguments.SetSslTargetNameOverride(options.server_name);
  // Health checks are not for proxies that the environment may name.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  grpc::GenericStub stub(grpc::CreateCustomChannel(options.address, credentials, arguments));
  grpc::ClientContext context;
  context.set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout_s * 1e3)));
  grpc::CompletionQueue queue;
  const grpc::Slice nothing("", 0);
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                          grpc::ByteBuffer(&nothing, 1), &queue);
  grpc::ByteBuffer response;
  grpc::Status status;
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  // The deadline ends it.
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) {
    std::cerr << "sinew-health: " << options.address << ": " << status.error_message() << "\n";
    return kUnreachable;
  }
  if (!says_serving(response)) {
    std::cerr << "sinew-health: " << options.address << " answers, and is not serving\n";
    return kNotServing;
  }
  return kServing;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Asks a worker how it is, by the gRPC health service.\n\n"
      "exit status: 0 serving, 1 not serving, 2 a mistake in the flags, 3 no answer",
      "sinew-health");
  app.add_option("address", options.address, "HOST:PORT")->required();
  app.add_option("--timeout", options.timeout_s, "Seconds until there must be an answer")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  auto* const ca = app.add_option("--ca", options.ca, "PEM file of authorities: over TLS");
  auto* const certificate = app.add_option("--certificate", options.certificate,
                                           "PEM file of this client, for mutual TLS");
  auto* const key = app.add_option("--key", options.key, "PEM file of its private key");
  certificate->needs(ca)->needs(key);
  key->needs(certificate);
  app.add_option("--server-name", options.server_name,
                 "The worker's name, which its certificate covers; without it HOST")
      ->needs(ca);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return probe(options);
}
