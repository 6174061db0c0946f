// Large payloads between two transports of one process, by UCX. UCX_TLS decides what that talks by:
// this program is several tests of ctest.

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/planes/ucx/ucx_plane.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/transport/grpc_fixture.h"
#include "sinew/tests/transport/station.h"

namespace sinew::internal {
namespace {

using sinew::testing::eventually;

GrpcTransportOptions with_ucx() {
  GrpcTransportOptions options;
  options.tuning.same_host_plane = false;
  UcxOptions ucx;
  ucx.loopback_only = true;
  auto plane = make_ucx_plane(ucx);
  EXPECT_TRUE(plane.ok()) << plane.status();
  if (plane.ok()) options.planes.push_back(*plane);
  return options;
}

/// A payload in one piece, as a tensor's is. `bytes` must outlive it.
absl::Cord flat(const std::string& bytes) {
  return absl::MakeCordFromExternal(bytes, [] {});
}

class GrpcUcx : public ::testing::Test {
 protected:
  GrpcUcx() : a(with_ucx()), b(with_ucx()) {
    handler = std::make_shared<RecordingHandler>();
    connection = a.transport->connect(b.address(), "hello", "", handler);
    EXPECT_TRUE(handler->wait_up());
    accepted = b.acceptor.handler();
    EXPECT_TRUE(accepted->wait_up());
  }

  static std::int64_t fetched(const Worker& worker) {
    return worker.transport->counters()["rpc.plane_fetched_tensors"];
  }
  /// Sends until the receiver fetches: the ends find out about planes after they are up.
  void warm_up() {
    const std::string bytes = pattern(300'000, 1);
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(connection->send(Lane::kCalls, make_frame("frame", {flat(bytes)})).ok());
      EXPECT_TRUE(accepted->wait_frames(Lane::kCalls, 1));
      for (Frame& frame : accepted->take_frames(Lane::kCalls)) {
        EXPECT_EQ(std::string(frame.payloads.at(0)), bytes);
      }
      return fetched(b) > 0;
    }));
  }

  Worker a;
  Worker b;
  std::shared_ptr<RecordingHandler> handler;
  std::shared_ptr<Connection> connection;
  std::shared_ptr<RecordingHandler> accepted;
};

TEST_F(GrpcUcx, LargePayloadsGoByUcx) {
  warm_up();
  const std::int64_t before = fetched(b);
  std::atomic<int> let_go{0};
  const std::string bytes = pattern(std::size_t{12} << 20, 2);
  ASSERT_TRUE(connection
                  ->send(Lane::kCalls, make_frame("frame", {absl::MakeCordFromExternal(
                                                               bytes, [&] { ++let_go; })}))
                  .ok());
  ASSERT_TRUE(accepted->wait_frames(Lane::kCalls, 1));
  EXPECT_TRUE(std::string(accepted->take_frames(Lane::kCalls).at(0).payloads.at(0)) == bytes);
  EXPECT_EQ(fetched(b), before + 1);
  EXPECT_TRUE(eventually([&] { return let_go == 1; })) << "its memory is let go of";
}

TEST_F(GrpcUcx, ManyPayloadsBothWays) {
  warm_up();
  constexpr std::size_t kFrames = 150;
  const auto send_all = [](Connection& from, unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < kFrames; ++i) {
      const std::size_t size = std::size_t{1024} << (random() % 10);
      const auto bytes = std::make_shared<const std::string>(pattern(size + random() % size, i));
      const absl::Cord payload = absl::MakeCordFromExternal(*bytes, [bytes] {});
      EXPECT_TRUE(from.send(Lane::kCalls, make_frame(absl::StrCat(i), {payload})).ok());
    }
  };
  const std::shared_ptr<Connection> back = accepted->connection();
  std::thread there([&] { send_all(*connection, 1); });
  std::thread here([&] { send_all(*back, 2); });
  there.join();
  here.join();
  for (RecordingHandler* const receiver : {accepted.get(), handler.get()}) {
    ASSERT_TRUE(receiver->wait_frames(Lane::kCalls, kFrames));
    for (const Frame& frame : receiver->take_frames(Lane::kCalls)) {
      const std::string bytes(frame.payloads.at(0));
      const auto seed = static_cast<std::size_t>(std::stoul(frame.envelope));
      EXPECT_TRUE(bytes == pattern(bytes.size(), seed)) << seed;
    }
  }
  EXPECT_GT(fetched(a), 0);
  EXPECT_EQ(a.transport->counters()["rpc.plane_failures"], 0);
  EXPECT_EQ(b.transport->counters()["rpc.plane_failures"], 0);
}

TEST_F(GrpcUcx, MayGoDownWhilePayloadsAreUnderWay) {
  warm_up();
  const std::string bytes = pattern(std::size_t{16} << 20, 2);
  std::atomic<int> let_go{0};
  for (int i = 0; i < 6; ++i) {
    const absl::Cord payload = absl::MakeCordFromExternal(bytes, [&] { ++let_go; });
    ASSERT_TRUE(connection->send(Lane::kCalls, make_frame("frame", {payload})).ok());
  }
  ASSERT_TRUE(accepted->wait_frames(Lane::kCalls, 1));
  connection->close(absl::UnavailableError("done"));
  ASSERT_TRUE(handler->wait_down());
  ASSERT_TRUE(accepted->wait_down());
  for (const Frame& frame : accepted->take_frames(Lane::kCalls)) {
    EXPECT_TRUE(std::string(frame.payloads.at(0)) == bytes);
  }
  EXPECT_TRUE(eventually([&] { return let_go == 6; }));
}

TEST_F(GrpcUcx, WhereOnlyOneEndHasItPayloadsGoByGrpc) {
  GrpcTransportOptions options;
  options.tuning.same_host_plane = false;
  Worker without(options);
  auto receiver = std::make_shared<RecordingHandler>();
  const auto other = a.transport->connect(without.address(), "hello", "", receiver);
  ASSERT_TRUE(receiver->wait_up());
  const std::string bytes = pattern(300'000, 4);
  for (std::size_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(other->send(Lane::kCalls, make_frame("frame", {flat(bytes)})).ok());
  }
  const auto there = without.acceptor.handler();
  ASSERT_TRUE(there->wait_frames(Lane::kCalls, 20));
  for (Frame& frame : there->take_frames(Lane::kCalls)) {
    EXPECT_EQ(std::string(frame.payloads.at(0)), bytes);
  }
  EXPECT_EQ(fetched(without), 0);
}

}  // namespace
}  // namespace sinew::internal
