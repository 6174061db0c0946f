// What those may cost a worker who are no workers, or have not shown yet that they are.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/transport/grpc_fixture.h"

namespace sinew::internal {
namespace {

using sinew::testing::eventually;
using ::testing::HasSubstr;

constexpr char kExchange[] = "/sinew.proto.Worker/Exchange";
constexpr char kCall[] = "/sinew.proto.Worker/Call";

/// Makes calls of any kind over one TCP connection, and takes no answers but statuses.
class Stranger {
 public:
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> unary;
    grpc::ByteBuffer answer;
    grpc::Status status;
    bool ended = false;
  };

  explicit Stranger(const std::string& address) : stub_(channel_to(address)) {}
  ~Stranger() {
    for (Call& call : calls_) call.context.TryCancel();
    EXPECT_TRUE(wait_ended(calls_.size()));
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
  }

  /// Begins a call; with `message`, also sends that. Never reads.
  Call& begin(const char* method, const std::string& lane = "",
              const grpc::ByteBuffer* message = nullptr) {
    Call& call = calls_.emplace_back();
    if (!lane.empty()) call.context.AddMetadata("sinew-lane", lane);
    call.stream = stub_.PrepareCall(&call.context, method, &queue_);
    call.stream->StartCall(&started_);
    call.stream->Finish(&call.status, &call);
    EXPECT_TRUE(wait([this] { return std::exchange(start_done_, false); }));
    if (message != nullptr) call.stream->WriteLast(*message, grpc::WriteOptions(), nullptr);
    return call;
  }
  /// A call with an empty request, whose answer is taken.
  Call& call_unary() {
    Call& call = calls_.emplace_back();
    call.unary = stub_.PrepareUnaryCall(&call.context, kCall, empty(), &queue_);
    call.unary->StartCall();
    call.unary->Finish(&call.answer, &call.status, &call);
    return call;
  }

  static grpc::ByteBuffer empty() {
    const grpc::Slice slice("");
    return grpc::ByteBuffer(&slice, 1);
  }

  std::size_t ended() const {
    std::size_t count = 0;
    for (const Call& call : calls_) count += call.ended ? 1 : 0;
    return count;
  }
  /// Those that have ended with `code`.
  std::size_t ended_with(grpc::StatusCode code) const {
    std::size_t count = 0;
    for (const Call& call : calls_) count += call.ended && call.status.error_code() == code ? 1 : 0;
    return count;
  }
  /// How many have ended by now.
  std::size_t poll_ended() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now()) ==
           grpc::CompletionQueue::GOT_EVENT) {
      handle(tag);
    }
    return ended();
  }
  /// Waits until so many calls have ended. False if they did not.
  bool wait_ended(std::size_t count) {
    return wait([this, count] { return ended() >= count; });
  }
  const Call& first_ended_with(grpc::StatusCode code) const {
    for (const Call& call : calls_) {
      if (call.ended && call.status.error_code() == code) return call;
    }
    return calls_.front();
  }

 private:
  static std::shared_ptr<grpc::Channel> channel_to(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetMaxReceiveMessageSize(-1);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }

  template <class Condition>
  bool wait(Condition condition) {
    const auto deadline = std::chrono::system_clock::now() + kPatience;
    while (!condition()) {
      void* tag = nullptr;
      bool ok = false;
      if (queue_.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) return false;
      handle(tag);
    }
    return true;
  }
  void handle(void* tag) {
    if (tag == &started_) {
      start_done_ = true;
    } else if (tag != nullptr) {
      static_cast<Call*>(tag)->ended = true;
    }
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  std::deque<Call> calls_;
  int started_ = 0;
  bool start_done_ = false;
};

/// Keeps the calls that come.
class Keeper : public UnaryHandler {
 public:
  void on_unary_call(std::unique_ptr<UnaryCall> call) override {
    MutexLock lock(mutex_);
    kept_.push_back(std::move(call));
  }
  std::size_t count() const {
    MutexLock lock(mutex_);
    return kept_.size();
  }
  void answer_all() {
    std::vector<std::unique_ptr<UnaryCall>> kept;
    {
      MutexLock lock(mutex_);
      kept.swap(kept_);
    }
    for (const auto& call : kept) call->reply(Frame());
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<UnaryCall>> kept_ ABSL_GUARDED_BY(mutex_);
};

/// Answers with much, and counts the answers that are gone.
class Generous : public UnaryHandler {
 public:
  void on_unary_call(std::unique_ptr<UnaryCall> call) override {
    Frame reply;
    reply.payloads.push_back(absl::MakeCordFromExternal(bytes_, [this] { ++let_go; }));
    call->reply(std::move(reply));
  }
  static constexpr std::size_t kBytes = std::size_t{3} << 19;  // 1.5 MiB
  std::atomic<std::size_t> let_go{0};

 private:
  const std::string bytes_ = std::string(kBytes, 'r');
};

GrpcTransportOptions over_tcp() {
  GrpcTransportOptions options;
  options.tuning.local_sockets = false;
  return options;
}

/// Why no connection comes up; OK if one does.
absl::Status try_to_connect(Worker& from, const Worker& to) {
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = from.transport->connect(to.address(), "hi", "", handler);
  eventually([&] { return handler->is_up() || handler->is_down(); });
  const bool up = handler->is_up();
  connection->close(absl::UnavailableError("done"));
  EXPECT_TRUE(handler->wait_down());
  return up ? absl::OkStatus() : handler->reason();
}

bool connects(Worker& from, const Worker& to) { return try_to_connect(from, to).ok(); }

TEST(GrpcStrangers, HalfOpenConnectionsAreBounded) {
  GrpcTransportOptions options;
  options.limits.max_handshakes = 40;
  options.limits.connect_timeout = std::chrono::minutes(10);
  Worker here;
  Worker there(over_tcp());
  Worker worker(options);
  {
    Stranger stranger(worker.address());
    for (int i = 0; i < 100; ++i) stranger.begin(kExchange, "control");
    ASSERT_TRUE(stranger.wait_ended(90));
    EXPECT_EQ(stranger.ended(), 90U) << "a quarter is for one address";
    EXPECT_EQ(stranger.ended_with(grpc::StatusCode::UNAVAILABLE), 90U);
    EXPECT_THAT(stranger.first_ended_with(grpc::StatusCode::UNAVAILABLE).status.error_message(),
                HasSubstr("40 connections on their way up"));
    EXPECT_FALSE(connects(there, worker)) << "it shares the stranger's address";
    EXPECT_TRUE(connects(here, worker)) << "it does not";
  }
  EXPECT_TRUE(eventually([&] { return connects(there, worker); }));
}

TEST(GrpcStrangers, HalfOpenConnectionsEndInTime) {
  GrpcTransportOptions options;
  options.limits.connect_timeout = std::chrono::milliseconds(100);
  Worker worker(options);
  Stranger stranger(worker.address());
  for (int i = 0; i < 20; ++i) stranger.begin(kExchange, "control");
  EXPECT_TRUE(stranger.wait_ended(20)) << "those that wait for their turn too";
}

TEST(GrpcStrangers, CallsOfClientsAreBounded) {
  Keeper keeper;
  GrpcTransportOptions options;
  options.tuning.max_unary_calls = 40;
  Worker worker(options, &keeper);
  Stranger stranger(worker.address());
  for (int i = 0; i < 100; ++i) stranger.call_unary();
  ASSERT_TRUE(stranger.wait_ended(90));
  EXPECT_EQ(stranger.ended_with(grpc::StatusCode::RESOURCE_EXHAUSTED), 90U);
  EXPECT_THAT(
      stranger.first_ended_with(grpc::StatusCode::RESOURCE_EXHAUSTED).status.error_message(),
      HasSubstr("10 of them from one address"));
  EXPECT_TRUE(eventually([&] { return keeper.count() == 10; }));
  keeper.answer_all();
  ASSERT_TRUE(stranger.wait_ended(100));
  EXPECT_EQ(stranger.ended_with(grpc::StatusCode::OK), 10U);
  // Their places are free again, as soon as the worker has seen that they are over.
  EXPECT_TRUE(eventually([&] {
    const std::size_t before = stranger.poll_ended();
    stranger.call_unary();
    return eventually([&] { return keeper.count() == 1 || stranger.poll_ended() > before; }) &&
           keeper.count() == 1;
  }));
  keeper.answer_all();
}

TEST(GrpcStrangers, RequestsThatNeverArriveEnd) {
  Keeper keeper;
  GrpcTransportOptions options;
  options.tuning.unary_transfer_timeout = std::chrono::milliseconds(100);
  Worker worker(options, &keeper);
  Stranger stranger(worker.address());
  for (int i = 0; i < 50; ++i) stranger.begin(kCall);
  ASSERT_TRUE(stranger.wait_ended(50));
  EXPECT_EQ(stranger.ended_with(grpc::StatusCode::DEADLINE_EXCEEDED), 50U);
}

// What waits for the worker has time.
TEST(GrpcStrangers, CallsThatTakeLongGoOn) {
  Keeper keeper;
  GrpcTransportOptions options;
  options.tuning.unary_transfer_timeout = std::chrono::seconds(2);
  Worker worker(options, &keeper);
  Stranger stranger(worker.address());
  stranger.call_unary();
  ASSERT_TRUE(eventually([&] { return keeper.count() == 1; }));
  // Ends by that time, as one that sends nothing.
  stranger.begin(kCall);
  ASSERT_TRUE(stranger.wait_ended(1));
  keeper.answer_all();
  ASSERT_TRUE(stranger.wait_ended(2));
  EXPECT_EQ(stranger.ended_with(grpc::StatusCode::OK), 1U);
}

TEST(GrpcStrangers, ResultsThatAreNotTakenAreBounded) {
  Generous generous;
  GrpcTransportOptions options;
  options.tuning.max_unary_bytes = std::size_t{4} << 20;
  options.tuning.max_unary_held_bytes = std::size_t{16} << 20;
  Worker worker(options, &generous);
  Stranger stranger(worker.address());
  const grpc::ByteBuffer request = Stranger::empty();
  for (int i = 0; i < 20; ++i) stranger.begin(kCall, "", &request);
  ASSERT_TRUE(stranger.wait_ended(18)) << "4 MiB hold two of them";
  EXPECT_EQ(stranger.ended_with(grpc::StatusCode::RESOURCE_EXHAUSTED), 18U);
  const grpc::Status& refused =
      stranger.first_ended_with(grpc::StatusCode::RESOURCE_EXHAUSTED).status;
  EXPECT_THAT(refused.error_message(), HasSubstr("not taken"));
  EXPECT_EQ(error_in_details(refused).origin(), proto::ORIGIN_CALLEE);
  EXPECT_EQ(error_in_details(refused).execution(), proto::MAY_HAVE_RUN);
  EXPECT_TRUE(eventually([&] { return generous.let_go == 18; }));
}

TEST(GrpcStrangers, AResultLargerThanAllThatIsHeldPassesAlone) {
  Generous generous;
  GrpcTransportOptions options;
  options.tuning.max_unary_bytes = 1000;
  options.tuning.max_unary_held_bytes = 1000;
  Worker worker(options, &generous);
  Stranger stranger(worker.address());
  stranger.call_unary();
  ASSERT_TRUE(stranger.wait_ended(1));
  EXPECT_EQ(stranger.ended_with(grpc::StatusCode::OK), 1U);
}

TEST(GrpcStrangers, ResultsThatAreNotTakenAreDropped) {
  Generous generous;
  GrpcTransportOptions options;
  options.tuning.unary_transfer_timeout = std::chrono::seconds(2);
  Worker worker(options, &generous);
  Stranger stranger(worker.address());
  const grpc::ByteBuffer request = Stranger::empty();
  for (int i = 0; i < 10; ++i) stranger.begin(kCall, "", &request);
  EXPECT_TRUE(eventually([&] { return generous.let_go == 10; }));
}

/// A TCP connection that says nothing.
class Idle {
 public:
  Idle() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}

  bool connect(const std::string& address) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<std::uint16_t>(parse_host_port(address)->port));
    return ::connect(socket_.number(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  /// Whether the worker talks to it, or has closed it. A server of HTTP/2 speaks first.
  bool is_served() {
    const timeval patience{30, 0};
    ::setsockopt(socket_.number(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char byte = 0;
    return ::recv(socket_.number(), &byte, 1, MSG_PEEK) == 1;
  }

 private:
  FileDescriptor socket_;
};

std::size_t served_of(std::deque<Idle>& connections) {
  std::size_t served = 0;
  for (Idle& each : connections) served += each.is_served() ? 1 : 0;
  return served;
}

TEST(GrpcStrangers, ConnectionsFromOneAddressAreBounded) {
  Mutex mutex;
  std::vector<std::string> lines;
  GrpcTransportOptions options;
  options.tuning.max_connections = 8;
  options.log = [&](const std::string& line) {
    MutexLock lock(mutex);
    lines.push_back(line);
  };
  Worker here;
  Worker worker(options);
  {
    std::deque<Idle> idle(50);
    for (Idle& each : idle) ASSERT_TRUE(each.connect(worker.address()));
    EXPECT_EQ(served_of(idle), 4U + 2U) << "two at a time are open to be told";
    EXPECT_TRUE(connects(here, worker));
    MutexLock lock(mutex);
    ASSERT_FALSE(lines.empty());
    EXPECT_THAT(lines.front(), HasSubstr("a connection from 127.0.0.1 was refused"));
    EXPECT_LT(lines.size(), 20U) << "one a second";
  }
  EXPECT_TRUE(eventually([&] {
    Idle again;
    return again.connect(worker.address()) && again.is_served();
  }));
}

TEST(GrpcStrangers, WhoFindsNoRoomIsToldWhy) {
  GrpcTransportOptions options = over_tcp();
  options.tuning.max_connections = 8;
  Worker worker(options);
  std::deque<Idle> idle(4);
  for (Idle& each : idle) ASSERT_TRUE(each.connect(worker.address()));
  EXPECT_EQ(served_of(idle), 4U);
  // One after the other, they do not use up what there is to tell them.
  for (int i = 0; i < 20; ++i) {
    Worker here(over_tcp());
    std::string why;
    // The one before may not have gone yet.
    EXPECT_TRUE(eventually([&] {
      why = std::string(try_to_connect(here, worker).message());
      return absl::StrContains(
          why, "this worker has room for 8 connections, and for 4 from one address");
    })) << i
        << ": " << why;
  }
  idle.clear();
  Worker here(over_tcp());
  EXPECT_TRUE(eventually([&] { return connects(here, worker); }));
}

/// Leaves the process so many file descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t left) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next) + left;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

// As prlimit does from outside.
TEST(GrpcStrangers, ALimitThatIsRaisedIsNoticed) {
  Worker here(over_tcp());
  Worker worker(over_tcp());
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  // Three eighths of the limit are for one address, and each connection takes two here.
  const auto limit = static_cast<rlim_t>(4 * (next + 40));
  const std::size_t room = limit / 4 * 3 / 2;
  std::deque<Idle> idle;
  {
    const FewDescriptors few(limit - static_cast<rlim_t>(next));
    while (idle.size() < room) ASSERT_TRUE(idle.emplace_back().connect(worker.address()));
    ASSERT_EQ(served_of(idle), room);
    EXPECT_THAT(std::string(try_to_connect(here, worker).message()),
                HasSubstr(absl::StrCat(room, " from one address: its RLIMIT_NOFILE is ", limit)));
  }
  EXPECT_TRUE(connects(here, worker));
}

TEST(GrpcStrangers, AcceptsAgainAfterItHadNoDescriptorsLeft) {
  Worker there(over_tcp());
  Worker worker(over_tcp());
  ASSERT_TRUE(connects(there, worker));
  {
    std::deque<Idle> idle(100);
    const FewDescriptors few(10);
    for (Idle& each : idle) ASSERT_TRUE(each.connect(worker.address()));
    EXPECT_LT(served_of(idle), 50U) << "the others are closed, not left waiting";
  }
  EXPECT_TRUE(eventually([&] { return connects(there, worker); }));
}

}  // namespace
}  // namespace sinew::internal
