#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "sinew/rpc.grpc.pb.h"
#include "sinew/rpc/transport/grpc/grpc_transport.h"
#include "sinew/standard/google/rpc/status.pb.h"
#include "sinew/tests/transport/recording_handler.h"
#include "sinew/tests/transport/transport_conformance.h"

namespace sinew::internal {

/// A loopback port that is bound but does not listen: connections to it are refused, and nobody
/// else gets it.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket_, generic, size), 0);
    EXPECT_EQ(::getsockname(socket_, generic, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~ReservedPort() { ::close(socket_); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;

  void listen() { EXPECT_EQ(::listen(socket_, 16), 0); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const int socket_;
  int port_ = 0;
};

/// What a worker says of a call that failed, beside its code and text. A failure of the test where
/// it says nothing.
inline proto::Error error_in_details(const grpc::Status& status) {
  standard::google::rpc::Status details;
  proto::Error error;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  if (details.details_size() != 1) {
    ADD_FAILURE() << details.details_size() << " details: " << status.error_message();
    return error;
  }
  EXPECT_EQ(details.details(0).type_url(), kErrorPayload);
  EXPECT_TRUE(error.ParseFromString(details.details(0).value()));
  return error;
}

/// Calls as a client in any language would: with protobuf's own encoding.
inline absl::StatusOr<Frame> call_as_foreign_client(const std::string& address,
                                                    const Frame& request,
                                                    std::chrono::nanoseconds timeout) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  const auto stub = proto::Worker::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::duration_cast<std::chrono::microseconds>(timeout));
  proto::CallRequest message;
  EXPECT_TRUE(message.mutable_call()->ParseFromString(request.envelope));
  for (const absl::Cord& payload : request.payloads) message.add_payloads(std::string(payload));
  proto::CallResponse answer;
  const grpc::Status status = stub->Call(&context, message, &answer);
  if (!status.ok()) {
    absl::Status failed(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
    if (!status.error_details().empty()) {
      failed.SetPayload(kErrorPayload, absl::Cord(error_in_details(status).SerializeAsString()));
    }
    return failed;
  }
  Frame frame;
  frame.envelope = answer.reply().SerializeAsString();
  for (const std::string& payload : answer.payloads()) frame.payloads.emplace_back(payload);
  return frame;
}

/// A started transport and what it accepted.
struct Worker {
  RecordingAcceptor acceptor;
  std::unique_ptr<Transport> transport;

  explicit Worker(GrpcTransportOptions options = {}, UnaryHandler* unary = nullptr)
      : transport(make_grpc_transport(std::move(options))) {
    const absl::Status started = transport->start(&acceptor, unary);
    EXPECT_TRUE(started.ok()) << started;
  }
  ~Worker() { transport->shutdown(); }
  std::string address() const { return transport->address(); }
};

/// A connection comes up, and a frame arrives.
inline void expect_reachable(Worker& from, Worker& to, const std::string& address) {
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = from.transport->connect(address, "hi", "", handler);
  ASSERT_TRUE(handler->wait_up()) << address << ": " << handler->reason();
  const auto accepted = to.acceptor.handler(to.acceptor.count() - 1);
  ASSERT_TRUE(connection->send(Lane::kCalls, Frame{"ping", {}, {}}).ok());
  EXPECT_TRUE(accepted->wait_frames(Lane::kCalls, 1));
  connection->close(absl::UnavailableError("done"));
  EXPECT_TRUE(handler->wait_down());
}

class GrpcFixture : public TransportFixture {
 public:
  explicit GrpcFixture(GrpcTuning tuning = {}) : tuning_(tuning) {}

  std::unique_ptr<Transport> make(const Transport::Limits& limits) override {
    GrpcTransportOptions options;
    options.limits = limits;
    options.tuning = tuning_;
    return make_grpc_transport(std::move(options));
  }
  std::string closed_address() override { return closed_.address(); }
  absl::StatusOr<Frame> unary_call(const std::string& address, Frame request,
                                   std::chrono::nanoseconds timeout) override {
    return call_as_foreign_client(address, request, timeout);
  }

 private:
  const GrpcTuning tuning_;
  const ReservedPort closed_;
};

}  // namespace sinew::internal
