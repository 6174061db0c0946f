// Handshakes and lanes by hand, good ones and bad ones.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "sinew/rpc/transport/grpc/connection/packet.h"
#include "sinew/tests/support/eventual_value.h"
#include "sinew/tests/transport/grpc_fixture.h"
#include "sinew/tests/transport/happening.h"
#include "sinew/tests/transport/recording_handler.h"

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;

/// A client that sends whatever bytes it likes.
grpc::Status exchange_raw(const std::string& address, const std::string& lane,
                          const std::string& token, const std::vector<std::string>& messages,
                          bool compressed = false) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  if (!lane.empty()) context.AddMetadata("sinew-lane", lane);
  if (!token.empty()) context.AddMetadata("sinew-connection", token);
  if (compressed) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, "/sinew.proto.Worker/Exchange", &queue);
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  call->StartCall(nullptr);
  next();
  for (const std::string& message : messages) {
    const grpc::Slice slice(message);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    if (!next()) break;
  }
  while (true) {
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    if (!next()) break;
  }
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  return status;
}

TEST(GrpcHandshake, MalformedHandshakesAreRefused) {
  Worker a;
  Worker b;
  const auto code = [&](const std::string& lane, const std::string& token,
                        const std::vector<std::string>& messages) {
    return exchange_raw(b.address(), lane, token, messages).error_code();
  };
  EXPECT_EQ(code("", "", {"x"}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code("sideways", "", {}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code("control", "", {"\xff\xff\xff"}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code("control", "", {""}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code("control", "", {std::string(std::size_t{9} << 20, 'x')}),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code("calls", "", {}), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(code("bulk", "0123456789abcdef0123456789abcdef", {"x"}),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_FALSE(exchange_raw(b.address(), "control", "", {std::string(1000, '\0')}, true).ok());
  EXPECT_EQ(b.acceptor.count(), 0U);
  expect_reachable(a, b, b.address());
}

proto::Frame frame_of(const std::string& envelope) {
  proto::Frame frame;
  frame.set_envelope(envelope);
  return frame;
}

TEST(GrpcHandshake, HellosThatAreTooLargeAreRefused) {
  Worker b;
  proto::Packet packet;
  proto::Frame& frame = *packet.add_frames();
  const auto refused = [&] {
    return exchange_raw(b.address(), "control", "", {packet.SerializeAsString()});
  };
  frame.set_envelope(std::string(kMaxHelloBytes + 1, 'h'));
  EXPECT_EQ(refused().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused().error_message(), HasSubstr("a hello of 262145 bytes is larger"));
  frame.set_envelope("hello");
  frame.add_payloads(std::string(kMaxHelloBytes, 'p'));
  EXPECT_EQ(refused().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(b.acceptor.count(), 0U);
}

/// An opener by hand: the control lane with a good hello; further lanes as the test likes.
class RawOpener {
 public:
  using Stream = grpc::ClientReaderWriter<proto::Packet, proto::Packet>;

  explicit RawOpener(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = proto::Worker::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    Stream& control = open("control");
    proto::Packet packet;
    packet.add_frames()->set_envelope("hello");
    EXPECT_TRUE(control.Write(packet));
    EXPECT_TRUE(control.Read(&packet));
    EXPECT_EQ(packet.frames_size(), 2);
    token_ = packet.frames(1).envelope();
  }
  ~RawOpener() {
    cancel();
    for (Lane& lane : lanes_) {
      if (lane.stream != nullptr) finish(*lane.stream);
    }
  }

  Stream& open(const std::string& lane) {
    Lane& opened = lanes_.emplace_back();
    opened.context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    opened.context.AddMetadata("sinew-lane", lane);
    if (!token_.empty()) opened.context.AddMetadata("sinew-connection", token_);
    opened.stream = stub_->Exchange(&opened.context);
    return *opened.stream;
  }
  /// Ends all lanes, and what waits for one.
  void cancel() {
    for (Lane& lane : lanes_) lane.context.TryCancel();
  }
  /// How the acceptor ended a lane that is of no use to it.
  grpc::Status open_refused(const std::string& lane) {
    const grpc::Status status = finish(open(lane));
    lanes_.pop_back();
    return status;
  }
  Stream& control() { return *lanes_.front().stream; }
  const std::string& token() const { return token_; }

 private:
  struct Lane {
    grpc::ClientContext context;
    std::unique_ptr<Stream> stream;
  };

  static grpc::Status finish(Stream& stream) {
    proto::Packet packet;
    while (stream.Read(&packet)) continue;
    return stream.Finish();
  }

  std::unique_ptr<proto::Worker::Stub> stub_;
  std::string token_;
  std::list<Lane> lanes_;
};

TEST(GrpcHandshake, TheNextPacketBringsTheAcceptorUpAndOtherLanesWaitForThat) {
  Worker worker;
  RawOpener opener(worker.address());
  auto& calls = opener.open("calls");
  auto& bulk = opener.open("bulk");
  // They have joined.
  EXPECT_EQ(opener.open_refused("calls").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(opener.open_refused("bulk").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  proto::Packet early;
  *early.add_frames() = frame_of("early");
  EXPECT_TRUE(calls.Write(early));
  const auto handler = worker.acceptor.handler();
  EXPECT_FALSE(handler->is_up());
  EXPECT_TRUE(opener.control().Write(proto::Packet()));
  ASSERT_TRUE(handler->wait_up());
  ASSERT_TRUE(handler->wait_frames(Lane::kCalls, 1));
  EXPECT_EQ(handler->take_frames(Lane::kCalls).front().envelope, "early");
  // This end answers on it, so it has joined.
  ASSERT_TRUE(handler->connection()
                  ->send(Lane::kCalls, Frame{"x", {absl::Cord(std::string(1 << 20, 'p'))}, {}})
                  .ok());
  proto::Packet packet;
  ASSERT_TRUE(bulk.Read(&packet));
  EXPECT_GT(packet.chunks_size(), 0);
  for (const char* lane : {"calls", "bulk"}) {
    const grpc::Status again = opener.open_refused(lane);
    EXPECT_EQ(again.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << lane;
    EXPECT_THAT(again.error_message(), HasSubstr("open already")) << lane;
  }
  EXPECT_FALSE(handler->is_down());
}

/// An acceptor by hand, which notes the lanes that come.
class RawAcceptor final : public proto::Worker::Service {
 public:
  /// Says what has been said to it where `hello` is empty.
  explicit RawAcceptor(proto::Frame token = frame_of("token"), std::string hello = "")
      : token_(std::move(token)), hello_(std::move(hello)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~RawAcceptor() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::vector<std::string> lanes() {
    std::lock_guard<std::mutex> lock(mutex_);
    return lanes_;
  }

  /// That have come on a lane, or rode.
  std::size_t frames(const std::string& lane) {
    std::lock_guard<std::mutex> lock(mutex_);
    return frames_[lane];
  }
  std::uint64_t riders_announced() {
    std::lock_guard<std::mutex> lock(mutex_);
    return riders_announced_;
  }

  grpc::Status Exchange(grpc::ServerContext* context,
                        grpc::ServerReaderWriter<proto::Packet, proto::Packet>* stream) override {
    const auto lane = context->client_metadata().find("sinew-lane");
    const std::string name(lane->second.begin(), lane->second.end());
    {
      std::lock_guard<std::mutex> lock(mutex_);
      lanes_.push_back(name);
    }
    proto::Packet packet;
    if (name == "control" && stream->Read(&packet)) {
      if (!hello_.empty()) packet.mutable_frames(0)->set_envelope(hello_);
      *packet.add_frames() = token_;
      stream->Write(packet);
    }
    while (stream->Read(&packet)) {
      if (packet.chunks_size() > 0) chunk_.notify();
      std::lock_guard<std::mutex> lock(mutex_);
      riders_announced_ += packet.riders();
      for (const proto::Frame& frame : packet.frames()) {
        ++frames_[frame.is_call() ? "rides" : name];
      }
    }
    return grpc::Status::OK;
  }
  bool wait_chunk() { return chunk_.wait(); }

 private:
  const proto::Frame token_;
  const std::string hello_;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<std::string> lanes_;
  std::map<std::string, std::size_t> frames_;
  std::uint64_t riders_announced_ = 0;
  Happening chunk_;
  std::unique_ptr<grpc::Server> server_;
};

/// Why no connection came up; OK: one did.
absl::Status dial(const RawAcceptor& acceptor) {
  Worker worker;
  auto handler = std::make_shared<RecordingHandler>();
  worker.transport->connect(acceptor.address(), "hi", "", handler);
  EXPECT_TRUE(sinew::testing::eventually([&] { return handler->is_up() || handler->is_down(); }));
  return handler->is_up() ? absl::OkStatus() : handler->reason();
}

TEST(GrpcHandshake, AnswersThatMakeNoSenseAreRefused) {
  const absl::Status large = dial(RawAcceptor(frame_of("token"), std::string(300'000, 'h')));
  EXPECT_EQ(large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(large.message(), HasSubstr("a hello of 300000 bytes is larger than the limit"));
  proto::Frame elsewhere;
  elsewhere.mutable_envelope_ticket()->set_transfer(1);
  elsewhere.mutable_envelope_ticket()->set_size_bytes(5);
  proto::Frame with_payload = frame_of("token");
  with_payload.add_payloads(std::string(300'000, 'p'));
  // The last ones are no metadata.
  for (const proto::Frame& token :
       {elsewhere, with_payload, frame_of(""), frame_of(std::string(5000, 't')), frame_of("a\nb"),
        frame_of(std::string("\0", 1))}) {
    const absl::Status reason = dial(RawAcceptor(token));
    EXPECT_EQ(reason.code(), absl::StatusCode::kInvalidArgument) << reason;
    EXPECT_THAT(reason.message(), HasSubstr("no token")) << token.ShortDebugString().substr(0, 50);
  }
}

TEST(GrpcHandshake, TheBulkLaneIsOpenedWhenItIsWanted) {
  for (const bool before_up : {false, true}) {
    RawAcceptor acceptor;
    Worker worker;
    auto handler = std::make_shared<RecordingHandler>();
    const auto connection = worker.transport->connect(acceptor.address(), "hi", "", handler);
    const Frame large{"x", {absl::Cord(std::string(1 << 20, 'p'))}, {}};
    if (before_up) {
      ASSERT_TRUE(connection->send(Lane::kCalls, large).ok());
    }
    ASSERT_TRUE(handler->wait_up()) << handler->reason();
    if (!before_up) {
      EXPECT_THAT(acceptor.lanes(), ::testing::ElementsAre("control"));
      for (int i = 0; i < 2; ++i) ASSERT_TRUE(connection->send(Lane::kCalls, large).ok());
    }
    ASSERT_TRUE(acceptor.wait_chunk());
    // Each has a thread of its own there.
    EXPECT_EVENTUALLY(acceptor.lanes(),
                      ::testing::UnorderedElementsAre("control", "calls", "bulk"));
    connection->close(absl::UnavailableError("done"));
    EXPECT_TRUE(handler->wait_down());
  }
}

TEST(GrpcHandshake, AFewSmallCallsRideOnTheControlLanesStream) {
  using sinew::testing::eventually;
  RawAcceptor acceptor;
  Worker worker;
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = worker.transport->connect(acceptor.address(), "hi", "", handler);
  ASSERT_TRUE(handler->wait_up()) << handler->reason();
  const auto send = [&](std::size_t bytes) {
    return connection->send(Lane::kCalls, Frame{std::string(bytes, 'e'), {}, {}}).ok();
  };
  constexpr std::size_t kRiders = 16;
  for (std::size_t i = 0; i < kRiders; ++i) ASSERT_TRUE(send(10));
  EXPECT_TRUE(eventually([&] { return acceptor.frames("rides") == kRiders; }));
  EXPECT_THAT(acceptor.lanes(), ::testing::ElementsAre("control"));
  ASSERT_TRUE(send(10));
  EXPECT_TRUE(eventually([&] { return acceptor.frames("calls") == 1; }));
  EXPECT_EQ(acceptor.frames("rides"), kRiders);
  EXPECT_EQ(acceptor.riders_announced(), kRiders);
  connection->close(absl::UnavailableError("done"));
  EXPECT_TRUE(handler->wait_down());
}

TEST(GrpcHandshake, ALargeCallDoesNotRide) {
  RawAcceptor acceptor;
  Worker worker;
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = worker.transport->connect(acceptor.address(), "hi", "", handler);
  ASSERT_TRUE(handler->wait_up()) << handler->reason();
  for (const std::size_t bytes : {10, 5000, 10}) {
    ASSERT_TRUE(connection->send(Lane::kCalls, Frame{std::string(bytes, 'e'), {}, {}}).ok());
  }
  // By two streams, of which either may be read first.
  EXPECT_EVENTUALLY(acceptor.frames("calls"), 2U);
  EXPECT_EVENTUALLY(acceptor.frames("rides"), 1U);
  connection->close(absl::UnavailableError("done"));
  EXPECT_TRUE(handler->wait_down());
}

TEST(GrpcHandshake, WhoAnswersManyRidersGetsTheStreamForItsAnswers) {
  Worker a;
  Worker b;
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = a.transport->connect(b.address(), "hi", "", handler);
  ASSERT_TRUE(handler->wait_up());
  const auto accepted = b.acceptor.handler();
  ASSERT_TRUE(accepted->wait_up());
  // The opener sends nothing on that lane. Frames keep their order when it gets its stream.
  constexpr std::size_t kFrames = 300;
  for (std::size_t i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(accepted->connection()->send(Lane::kCalls, Frame{std::to_string(i), {}, {}}).ok());
  }
  ASSERT_TRUE(handler->wait_frames(Lane::kCalls, kFrames));
  const std::vector<Frame> frames = handler->take_frames(Lane::kCalls);
  for (std::size_t i = 0; i < kFrames; ++i) EXPECT_EQ(frames[i].envelope, std::to_string(i));
  // What has a payload to be fetched, or in chunks, needs that stream or its own.
  ASSERT_TRUE(accepted->connection()
                  ->send(Lane::kCalls, Frame{"x", {absl::Cord(std::string(1 << 20, 'p'))}, {}})
                  .ok());
  ASSERT_TRUE(handler->wait_frames(Lane::kCalls, 1));
}

TEST(GrpcHandshake, FramesOfTheStreamWaitForThoseThatRode) {
  Worker worker;
  RawOpener opener(worker.address());
  const auto handler = worker.acceptor.handler();
  auto& calls = opener.open("calls");
  proto::Packet third;
  third.set_riders(2);
  *third.add_frames() = frame_of("third");
  proto::Packet rider;
  *rider.add_frames() = frame_of("first");
  rider.mutable_frames(0)->set_is_call(true);
  EXPECT_TRUE(calls.Write(third));
  EXPECT_TRUE(opener.control().Write(rider));
  ASSERT_TRUE(handler->wait_frames(Lane::kCalls, 1));
  EXPECT_EQ(handler->take_frames(Lane::kCalls).front().envelope, "first");
  // Whatever comes between on the control lane brings nothing on.
  proto::Packet control;
  *control.add_frames() = frame_of("control");
  EXPECT_TRUE(opener.control().Write(control));
  ASSERT_TRUE(handler->wait_frames(Lane::kControl, 1));
  EXPECT_TRUE(handler->take_frames(Lane::kCalls).empty());
  rider.mutable_frames(0)->set_envelope("second");
  EXPECT_TRUE(opener.control().Write(rider));
  ASSERT_TRUE(handler->wait_frames(Lane::kCalls, 2));
  const std::vector<Frame> frames = handler->take_frames(Lane::kCalls);
  EXPECT_EQ(frames[0].envelope, "second");
  EXPECT_EQ(frames[1].envelope, "third");
}

/// A good handshake, then `message` on one lane. Returns what the acceptor's handler was told.
absl::Status send_after_handshake(Worker& worker, const std::string& on_lane,
                                  const std::string& message) {
  const std::size_t index = worker.acceptor.count();
  RawOpener opener(worker.address());
  const auto handler = worker.acceptor.handler(index);
  auto& calls = opener.open("calls");
  EXPECT_TRUE(opener.control().Write(proto::Packet()));
  EXPECT_TRUE(handler->wait_up());
  // Unknown fields carry any bytes through protobuf.
  proto::Packet raw;
  raw.GetReflection()->MutableUnknownFields(&raw);
  EXPECT_TRUE(raw.ParseFromString(message));
  auto& stream = on_lane == "calls"  ? calls
                 : on_lane == "bulk" ? opener.open("bulk")
                                     : opener.control();
  EXPECT_TRUE(stream.Write(raw));
  EXPECT_TRUE(handler->wait_down());
  return handler->reason();
}

TEST(GrpcHandshake, ViolationsTakeTheConnectionDown) {
  GrpcTransportOptions options;
  options.limits.max_payloads = 4;
  options.limits.max_frame_bytes = 1 << 20;
  Worker a;
  Worker b(options);
  proto::Packet packet;
  proto::Frame& frame = *packet.add_frames();
  for (int i = 0; i < 5; ++i) frame.add_payloads("x");
  const std::string too_many = packet.SerializeAsString();
  frame.clear_payloads();
  frame.add_tickets()->set_size_bytes(std::uint64_t{1} << 50);
  frame.mutable_tickets(0)->set_transfer(1);
  const std::string too_large = packet.SerializeAsString();
  frame.mutable_tickets(0)->set_transfer(0);
  frame.mutable_tickets(0)->set_size_bytes(10);
  const std::string without_payload = packet.SerializeAsString();
  proto::Packet rides;
  rides.add_frames()->set_is_call(true);
  const std::string rider = rides.SerializeAsString();
  proto::Packet announces;
  announces.set_riders(1);
  const std::string announcement = announces.SerializeAsString();
  // Field 2 of Packet: a chunk, here one with a gap before it; field 3: a grant that nobody waits
  // for.
  const std::string gap(
      "\x12\x09\x08\x01\x10\x64\x18\x05\x7a\x01"
      "d",
      11);
  const std::string grant("\x1a\x01\x05", 3);
  for (const auto& [lane, message] :
       std::vector<std::pair<std::string, std::string>>{{"calls", too_many},
                                                        {"control", too_many},
                                                        {"calls", too_large},
                                                        {"control", too_large},
                                                        {"calls", without_payload},
                                                        {"bulk", gap},
                                                        {"bulk", grant},
                                                        {"calls", gap},
                                                        {"calls", rider},
                                                        {"control", announcement},
                                                        {"bulk", announcement},
                                                        {"bulk", without_payload}}) {
    const absl::Status reason = send_after_handshake(b, lane, message);
    EXPECT_EQ(reason.code(), absl::StatusCode::kInvalidArgument) << lane << ": " << reason;
  }
  expect_reachable(a, b, b.address());
}

// A member that does so loses its connection; whoever may be anybody is not read from any more.
TEST(GrpcHandshake, AStrangerIsNotReadFromBeforeItAnnouncesWhatItHasSent) {
  Worker worker;
  worker.acceptor.prepare = [](RecordingHandler& handler) { handler.set_may_send_ahead(false); };
  constexpr std::size_t kPart = std::size_t{1} << 20;
  const int too_many = static_cast<int>(kUnannouncedBytes / kPart) + 1;
  std::atomic<int> written{0};
  RawOpener opener(worker.address());
  auto& calls = opener.open("calls");
  auto& bulk = opener.open("bulk");
  EXPECT_TRUE(opener.control().Write(proto::Packet()));
  const auto handler = worker.acceptor.handler();
  ASSERT_TRUE(handler->wait_up());
  std::thread writer([&] {
    for (; written < too_many; ++written) {
      proto::Packet packet;
      proto::Chunk& chunk = *packet.add_chunks();
      chunk.set_transfer(1);
      chunk.set_size_bytes(std::size_t{100} << 20);
      chunk.set_offset(static_cast<std::uint64_t>(written) * kPart);
      chunk.set_data(std::string(kPart, 'x'));
      if (!bulk.Write(packet)) return;
    }
  });
  EXPECT_TRUE(sinew::testing::eventually([&] { return written > 0; }));
  // What is small goes on meanwhile.
  for (std::size_t i = 1; i <= 200 && !::testing::Test::HasFailure(); ++i) {
    proto::Packet small;
    *small.add_frames() = frame_of("small");
    EXPECT_TRUE(calls.Write(small));
    EXPECT_TRUE(handler->wait_frames(Lane::kCalls, i));
  }
  EXPECT_FALSE(handler->is_down()) << handler->reason();
  opener.cancel();
  writer.join();
  EXPECT_LT(written, too_many - 1);
}

TEST(GrpcHandshake, AStolenTokenIsOfNoUse) {
  Worker b;
  RawOpener opener(b.address());
  const grpc::Status status = exchange_raw(b.address(), "calls", opener.token(), {});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("belongs to another peer"));
}

}  // namespace
}  // namespace sinew::internal
