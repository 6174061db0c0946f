#include "sinew/rpc/transport/grpc/grpc_transport.h"

#include <dirent.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "sinew/rpc/transport/grpc/connection/grpc_connection.h"
#include "sinew/rpc/transport/grpc/local/local_address.h"
#include "sinew/tests/transport/grpc_fixture.h"
#include "sinew/tests/transport/happening.h"
#include "sinew/tests/transport/recording_handler.h"

namespace sinew::internal {
namespace {

using testing::HasSubstr;

absl::Status start_with(GrpcTransportOptions options) {
  RecordingAcceptor acceptor;
  const auto transport = make_grpc_transport(std::move(options));
  return transport->start(&acceptor, nullptr);
}

GrpcTransportOptions listening_on(std::vector<std::string> addresses) {
  GrpcTransportOptions options;
  options.listen = std::move(addresses);
  return options;
}

TEST(GrpcTransport, ListensOnSeveralAddresses) {
  Worker a;
  Worker b(listening_on({"127.0.0.1:0", "[::1]:0"}));
  expect_reachable(a, b, b.address());
  Worker six(listening_on({"[::1]:0"}));
  EXPECT_THAT(six.address(), testing::StartsWith("[::1]:"));
  expect_reachable(a, six, six.address());
}

TEST(GrpcTransport, HostNamesWork) {
  Worker a;
  Worker b(listening_on({"localhost:0"}));
  EXPECT_THAT(b.address(), testing::StartsWith("localhost:"));
  expect_reachable(a, b, b.address());
}

TEST(GrpcTransport, TextsThatAreNoAddressAreNamed) {
  Worker a;
  for (const std::string text :
       {"", "nonsense", "127.0.0.1", ":80", "host:", "host:99999", "host:-1", "[::1", "[::1]80",
        "::1:80", "ho st:80", "[host]:80", "host:8x"}) {
    const absl::Status started = start_with(listening_on({text}));
    EXPECT_EQ(started.code(), absl::StatusCode::kInvalidArgument) << text << ": " << started;
    EXPECT_THAT(std::string(started.message()), HasSubstr("\"" + text + "\""));
    auto handler = std::make_shared<RecordingHandler>();
    a.transport->connect(text, "", "", handler);
    ASSERT_TRUE(handler->wait_down());
    EXPECT_EQ(handler->reason().code(), absl::StatusCode::kInvalidArgument) << handler->reason();
  }
  EXPECT_EQ(start_with(listening_on({"192.0.2.1:0"})).code(), absl::StatusCode::kPermissionDenied);
  GrpcTransportOptions foreign = listening_on({"192.0.2.1:0"});
  foreign.credentials = Credentials::insecure_on_any_network();
  EXPECT_EQ(start_with(foreign).code(), absl::StatusCode::kInvalidArgument) << start_with(foreign);
}

TEST(GrpcTransport, ATakenPortIsNamed) {
  Worker a;
  const absl::Status taken = start_with(listening_on({a.address()}));
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists) << taken;
  EXPECT_THAT(std::string(taken.message()), HasSubstr(a.address()));
}

TEST(GrpcTransport, TheSamePortServesAgainAtOnce) {
  Worker opener;
  std::string address;
  {
    Worker first;
    address = first.address();
  }
  for (int round = 0; round < 10; ++round) {
    Worker again(listening_on({address}));
    EXPECT_EQ(again.address(), address);
    expect_reachable(opener, again, address);
  }
}

TEST(GrpcTransport, AWildcardNeedsAnAddressToAdvertise) {
  GrpcTransportOptions options = listening_on({"0.0.0.0:0"});
  options.credentials = Credentials::insecure_on_any_network();
  const absl::Status nameless = start_with(options);
  EXPECT_EQ(nameless.code(), absl::StatusCode::kInvalidArgument) << nameless;
  EXPECT_THAT(std::string(nameless.message()), HasSubstr("set advertised"));
  options.advertise_towards = "127.0.0.1:1";
  Worker routed(options);
  EXPECT_THAT(routed.address(), testing::StartsWith("127.0.0.1:"));
  options.advertised = "localhost";
  Worker named(options);
  EXPECT_THAT(named.address(), testing::StartsWith("localhost:"));
  Worker opener;
  expect_reachable(opener, named, named.address());
}

// As of a container whose port is another one outside.
TEST(GrpcTransport, AnAdvertisedPortStandsForTheOneThatIsBound) {
  GrpcTransportOptions options = listening_on({"127.0.0.1:0"});
  options.advertised = "example.org:4711";
  EXPECT_EQ(Worker(options).address(), "example.org:4711");
  options.advertised = "[::1]:4711";
  EXPECT_EQ(Worker(options).address(), "[::1]:4711");
  options.advertised = "::1";
  EXPECT_THAT(Worker(options).address(), testing::StartsWith("[::1]:"));
  for (const std::string wrong : {"localhost:0", "localhost:port", "a:b:4711"}) {
    options.advertised = wrong;
    const absl::Status failed = start_with(options);
    EXPECT_EQ(failed.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(failed.message()), HasSubstr(wrong));
  }
}

TEST(GrpcTransport, TheLocalAddressFollowsTheRoute) {
  EXPECT_EQ(*local_address_towards("127.0.0.1:80"), "127.0.0.1");
  EXPECT_EQ(*local_address_towards("[::1]:80"), "::1");
  EXPECT_EQ(local_address_towards("nonsense").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GrpcTransport, ConnectingEndsInTime) {
  // Takes connections, but never says a word.
  ReservedPort silent;
  silent.listen();
  GrpcTransportOptions options;
  options.limits.connect_timeout = std::chrono::milliseconds(200);
  Worker a(options);
  auto handler = std::make_shared<RecordingHandler>();
  a.transport->connect(silent.address(), "", "", handler);
  ASSERT_TRUE(handler->wait_down());
  EXPECT_EQ(handler->reason().code(), absl::StatusCode::kUnavailable) << handler->reason();
}

std::size_t count_threads() {
  std::size_t threads = 0;
  DIR* tasks = ::opendir("/proc/self/task");
  while (::readdir(tasks) != nullptr) ++threads;
  ::closedir(tasks);
  return threads;
}

std::size_t count_sockets() {
  std::size_t sockets = 0;
  DIR* files = ::opendir("/proc/self/fd");
  while (const dirent* file = ::readdir(files)) {
    char target[64] = "";
    const std::string path = std::string("/proc/self/fd/") + file->d_name;
    if (::readlink(path.c_str(), target, sizeof target - 1) > 0 &&
        std::string(target).rfind("socket:", 0) == 0) {
      ++sockets;
    }
  }
  ::closedir(files);
  return sockets;
}

TEST(GrpcTransport, LeavesNoThreadAndNoSocketBehind) {
  const auto round = [] {
    Worker a;
    Worker b;
    expect_reachable(a, b, b.address());
    expect_reachable(b, a, a.address());
  };
  round();
  const std::size_t sockets = count_sockets();
  std::size_t most_threads = 0;
  for (int i = 0; i < 20; ++i) {
    round();
    most_threads = std::max(most_threads, count_threads());
  }
  // gRPC keeps some threads of its own for a while; none may be added with each round.
  EXPECT_LE(most_threads, 24U);
  EXPECT_LE(count_sockets(), sockets + 1);
}

TEST(GrpcTransport, ConnectionsOutliveTheirTransport) {
  std::shared_ptr<Connection> kept;
  auto handler = std::make_shared<RecordingHandler>();
  Frame frame;
  {
    Worker a;
    Worker b;
    kept = a.transport->connect(b.address(), "hi", "", handler);
    ASSERT_TRUE(handler->wait_up());
    ASSERT_TRUE(
        kept->send(Lane::kCalls, Frame{"x", {absl::Cord(std::string(300'000, 'p'))}, {}}).ok());
    const auto accepted = b.acceptor.handler();
    ASSERT_TRUE(accepted->wait_frames(Lane::kCalls, 1));
    frame = std::move(accepted->take_frames(Lane::kCalls).front());
  }
  EXPECT_TRUE(absl::IsUnavailable(kept->send(Lane::kCalls, Frame{"late", {}, {}})));
  kept->close(absl::UnavailableError("late"));
  EXPECT_TRUE(frame.payloads.at(0) == std::string(300'000, 'p'));
}

/// A dial of which nothing comes.
class Dial final : public GrpcConnection {
 public:
  explicit Dial(const std::shared_ptr<TransportCore>& core) : GrpcConnection(core) {}
  using GrpcConnection::enter;

  Happening released;

 private:
  bool may_ride(const PacketFrame&, std::size_t) override { return true; }
  void on_handshake_read(StreamKind, grpc::ByteBuffer) override {}
  absl::Status explain_end(const absl::Status& status, bool) const override { return status; }
  void release() override { released.notify(); }
};

TEST(GrpcTransport, ADialThatIsTakenDownAsItEntersHoldsUpNoShutdown) {
  const auto core = std::make_shared<TransportCore>(GrpcTransportOptions());
  const auto dial = std::make_shared<Dial>(core);
  // shutdown() knows it before it has entered.
  dial->close(absl::UnavailableError("the transport shuts down"));
  ASSERT_TRUE(dial->released.wait());
  ASSERT_FALSE(dial->enter());
  core->begin_shutdown();
  core->finish_shutdown();
}

TEST(GrpcTransport, ConnectsAgainToARestartedWorker) {
  Worker a;
  auto first = std::make_unique<Worker>();
  const std::string address = first->address();
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = a.transport->connect(address, "hi", "", handler);
  ASSERT_TRUE(handler->wait_up());
  first.reset();
  ASSERT_TRUE(handler->wait_down());
  EXPECT_EQ(handler->reason().code(), absl::StatusCode::kUnavailable) << handler->reason();
  Worker second(listening_on({address}));
  expect_reachable(a, second, address);
}

TEST(GrpcTransport, LargeEnvelopesTravelToo) {
  Worker a;
  Worker b;
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = a.transport->connect(b.address(), "hi", "", handler);
  ASSERT_TRUE(handler->wait_up());
  const std::string large(std::size_t{20} << 20, 'e');
  for (const Lane lane : {Lane::kCalls, Lane::kControl}) {
    ASSERT_TRUE(connection->send(lane, Frame{large, {absl::Cord("tail")}, {}}).ok());
    const auto accepted = b.acceptor.handler();
    ASSERT_TRUE(accepted->wait_frames(lane, 1));
    const std::vector<Frame> frames = accepted->take_frames(lane);
    EXPECT_TRUE(frames[0].envelope == large);
    EXPECT_EQ(frames[0].payloads.at(0), "tail");
  }
}

// More in each direction than the receiver takes before it has read the tickets.
TEST(GrpcTransport, ManyLargeFramesPassBothWays) {
  Worker a;
  Worker b;
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = a.transport->connect(b.address(), "hi", "", handler);
  ASSERT_TRUE(handler->wait_up());
  const auto accepted = b.acceptor.handler();
  ASSERT_TRUE(accepted->wait_up());
  const absl::Cord payload(std::string(std::size_t{3} << 20, 'p'));
  constexpr std::size_t kFrames = 40;
  for (std::size_t i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(connection->send(Lane::kCalls, Frame{"x", {payload}, {}}).ok());
    ASSERT_TRUE(
        accepted->connection()->send(Lane::kCalls, Frame{"y", {payload, payload}, {}}).ok());
  }
  EXPECT_TRUE(accepted->wait_frames(Lane::kCalls, kFrames));
  EXPECT_TRUE(handler->wait_frames(Lane::kCalls, kFrames));
}

class EchoUnary : public UnaryHandler {
 public:
  void on_unary_call(std::unique_ptr<UnaryCall> call) override {
    Frame answer;
    answer.envelope = call->request().envelope;
    answer.payloads = std::move(call->request().payloads);
    call->reply(std::move(answer));
  }
};

/// Answers with more than 2 GiB, though it has only a part of that in memory.
class HugeUnary : public UnaryHandler {
 public:
  void on_unary_call(std::unique_ptr<UnaryCall> call) override {
    const absl::Cord part(std::string(std::size_t{16} << 20, 'x'));
    absl::Cord payload;
    while (payload.size() <= std::size_t{2} << 30) payload.Append(part);
    Frame answer;
    answer.payloads.push_back(std::move(payload));
    call->reply(std::move(answer));
  }
};

TEST(GrpcTransport, ResultsThatNoMessageOfGrpcCanCarryAreRefused) {
  HugeUnary huge;
  Worker a({}, &huge);
  const absl::StatusOr<Frame> answer =
      call_as_foreign_client(a.address(), Frame(), std::chrono::minutes(1));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kResourceExhausted) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("return it in parts"));
  proto::Error error;
  ASSERT_TRUE(error.ParseFromString(
      std::string(answer.status().GetPayload(kErrorPayload).value_or(absl::Cord()))));
  EXPECT_EQ(error.origin(), proto::ORIGIN_CALLEE);
  EXPECT_EQ(error.execution(), proto::MAY_HAVE_RUN);
}

TEST(GrpcTransport, MalformedAndOversizedUnaryCallsAreRefused) {
  EchoUnary echo;
  GrpcTransportOptions options;
  options.limits.max_payloads = 3;
  options.tuning.max_unary_bytes = std::size_t{10} << 20;
  Worker a(options, &echo);
  const auto channel = grpc::CreateChannel(a.address(), grpc::InsecureChannelCredentials());
  const auto call = [&](const std::string& bytes) {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    grpc::CompletionQueue queue;
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    const auto reader =
        stub.PrepareUnaryCall(&context, "/sinew.proto.Worker/Call", request, &queue);
    reader->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    reader->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status.error_code();
  };
  EXPECT_EQ(call("\xff\xff\xff"), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(call(std::string("\x0a\x7f", 2)), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(call(std::string("\x7a\x00\x7a\x00\x7a\x00\x7a\x00", 8)),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(call(std::string((std::size_t{10} << 20) + 100, 'x')),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(call(std::string((std::size_t{64} << 20), 'x')), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(call(""), grpc::StatusCode::OK);
}

TEST(GrpcTransport, UnaryCallsNeedAHandler) {
  Worker a;
  const absl::StatusOr<Frame> answer =
      call_as_foreign_client(a.address(), Frame{}, std::chrono::seconds(30));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnimplemented) << answer.status();
}

TEST(GrpcTransport, WhatIsNoWorkerCountsAsNobody) {
  Worker a;
  grpc::CallbackGenericService no_methods;
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(&no_methods);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  const auto server = builder.BuildAndStart();
  auto handler = std::make_shared<RecordingHandler>();
  a.transport->connect("127.0.0.1:" + std::to_string(port), "", "", handler);
  ASSERT_TRUE(handler->wait_down());
  EXPECT_EQ(handler->reason().code(), absl::StatusCode::kNotFound) << handler->reason();
  server->Shutdown();
}

TEST(GrpcTransport, WhoReadsNoControlFramesLosesTheConnection) {
  Happening over;
  Worker a;
  Worker b;
  b.acceptor.prepare = [&over](RecordingHandler& handler) {
    handler.set_frames_hook(
        [&over](const std::shared_ptr<Connection>&, Lane, std::vector<Frame>&) { over.wait(); });
  };
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = a.transport->connect(b.address(), "hi", "", handler);
  ASSERT_TRUE(handler->wait_up());
  int sent = 0;
  while (sent < 1'000'000 && connection->send(Lane::kControl, Frame{"beat", {}, {}}).ok()) ++sent;
  over.notify();
  ASSERT_TRUE(handler->wait_down());
  EXPECT_THAT(std::string(handler->reason().message()), HasSubstr("does not read"));
  EXPECT_GT(sent, 65536) << "as many as the window of control frames lets in";
  EXPECT_TRUE(b.acceptor.handler()->wait_down());
}

}  // namespace
}  // namespace sinew::internal
