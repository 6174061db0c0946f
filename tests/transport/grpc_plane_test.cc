// Large payloads that the receiver fetches, between two transports of one process.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/support/fake_plane.h"
#include "sinew/tests/transport/grpc_fixture.h"
#include "sinew/tests/transport/station.h"

namespace sinew::internal {
namespace {

using sinew::testing::eventually;

constexpr std::size_t kLarge = std::size_t{300} << 10;

GrpcTransportOptions with(std::shared_ptr<FakePlane> plane) {
  GrpcTransportOptions options;
  options.tuning.same_host_plane = plane == nullptr;
  if (plane != nullptr) options.planes.push_back(std::move(plane));
  return options;
}

/// A payload in one piece, as a tensor's is. `bytes` must outlive it.
absl::Cord flat(const std::string& bytes) {
  return absl::MakeCordFromExternal(bytes, [] {});
}
/// Counts when it is let go of.
absl::Cord payload_of(const std::string& bytes, std::atomic<int>& let_go) {
  return absl::MakeCordFromExternal(bytes, [&let_go] { ++let_go; });
}

struct Joined {
  explicit Joined(const GrpcTransportOptions& options) : a(options), b(options) {
    handler = std::make_shared<RecordingHandler>();
    connection = a.transport->connect(b.address(), "hello", "", handler);
    EXPECT_TRUE(handler->wait_up());
    accepted = b.acceptor.handler();
    EXPECT_TRUE(accepted->wait_up());
  }

  /// Sends a payload and returns what has arrived.
  std::string send(const absl::Cord& payload) {
    std::vector<absl::Cord> payloads = {payload};
    EXPECT_TRUE(connection->send(Lane::kCalls, make_frame("frame", std::move(payloads))).ok());
    EXPECT_TRUE(accepted->wait_frames(Lane::kCalls, 1));
    std::vector<Frame> frames = accepted->take_frames(Lane::kCalls);
    return frames.size() == 1 ? std::string(frames[0].payloads.at(0)) : "";
  }
  std::int64_t fetched() { return b.transport->counters()["rpc.plane_fetched_tensors"]; }
  std::int64_t failed() { return b.transport->counters()["rpc.plane_failures"]; }
  /// Sends until the receiver fetches: the ends find out about planes after they are up.
  void warm_up() {
    const std::string bytes = pattern(kLarge, 1);
    EXPECT_TRUE(eventually([&] {
      EXPECT_EQ(send(flat(bytes)), bytes);
      return fetched() + failed() > 0;
    }));
  }

  Worker a;
  Worker b;
  std::shared_ptr<RecordingHandler> handler;
  std::shared_ptr<Connection> connection;
  std::shared_ptr<RecordingHandler> accepted;
};

TEST(GrpcPlane, LargePayloadsAreFetchedOutOfTheOtherProcess) {
  Joined joined(with(nullptr));
  joined.warm_up();
  EXPECT_EQ(joined.failed(), 0);
  for (const std::size_t size :
       {std::size_t{70} << 10, std::size_t{1} << 20, std::size_t{5} << 20}) {
    const std::string bytes = pattern(size, size);
    const std::int64_t before = joined.fetched();
    EXPECT_EQ(joined.send(flat(bytes)), bytes);
    EXPECT_EQ(joined.fetched(), before + 1);
  }
}

TEST(GrpcPlane, BothEndsKnowWhoTheOtherIsThoughNothingIsSent) {
  Joined joined(with(nullptr));
  EXPECT_TRUE(eventually([&] { return joined.connection->remote_process() != nullptr; }));
  EXPECT_TRUE(
      eventually([&] { return joined.accepted->connection()->remote_process() != nullptr; }));
}

TEST(GrpcPlane, AlsoWithTls) {
  const sinew::testing::Certificates certificates;
  GrpcTransportOptions options = with(nullptr);
  options.credentials =
      Credentials::mutual_tls(certificates.issue("worker", "DNS:worker,IP:127.0.0.1"));
  Joined joined(options);
  EXPECT_TRUE(joined.connection->remote().authenticated);
  joined.warm_up();
  EXPECT_EQ(joined.failed(), 0);
  const std::string bytes = pattern(kLarge, 2);
  EXPECT_EQ(joined.send(flat(bytes)), bytes);
}

TEST(GrpcPlane, RepliesAreFetchedToo) {
  Joined joined(with(nullptr));
  const std::string bytes = pattern(kLarge, 3);
  const auto fetched_here = [&] {
    return joined.a.transport->counters()["rpc.plane_fetched_tensors"];
  };
  EXPECT_TRUE(eventually([&] {
    const std::size_t before = joined.handler->frame_count(Lane::kCalls);
    EXPECT_TRUE(
        joined.accepted->connection()->send(Lane::kCalls, make_frame("reply", {flat(bytes)})).ok());
    EXPECT_TRUE(joined.handler->wait_frames(Lane::kCalls, before + 1));
    return fetched_here() > 0;
  }));
  for (Frame& frame : joined.handler->take_frames(Lane::kCalls)) {
    EXPECT_EQ(std::string(frame.payloads.at(0)), bytes);
  }
}

TEST(GrpcPlane, MemoryIsLetGoOfWithoutAReply) {
  Joined joined(with(nullptr));
  joined.warm_up();
  const std::string bytes = pattern(kLarge, 4);
  std::atomic<int> let_go{0};
  EXPECT_EQ(joined.send(payload_of(bytes, let_go)), bytes);
  EXPECT_TRUE(eventually([&] { return let_go == 1; }));
}

TEST(GrpcPlane, ManyPayloadsOfOneFrameAreFetched) {
  Joined joined(with(nullptr));
  joined.warm_up();
  std::vector<absl::Cord> payloads;
  std::vector<std::string> sent;
  for (std::size_t i = 0; i < 200; ++i) sent.push_back(pattern(i * 700, i));
  for (const std::string& bytes : sent) payloads.push_back(flat(bytes));
  ASSERT_TRUE(joined.connection->send(Lane::kCalls, make_frame("many", payloads)).ok());
  ASSERT_TRUE(joined.accepted->wait_frames(Lane::kCalls, 1));
  const std::vector<Frame> frames = joined.accepted->take_frames(Lane::kCalls);
  ASSERT_EQ(frames.at(0).payloads.size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(std::string(frames[0].payloads[i]), sent[i]) << i;
  }
}

// All that tells of a frame stands in one packet, which has a bound.
TEST(GrpcPlane, LongLocationsOfManyPayloadsFitInAPacket) {
  constexpr std::size_t kPayloads = 20'000;
  const auto plane = std::make_shared<FakePlane>();
  Joined joined(with(plane));
  joined.warm_up();
  plane->padding_bytes = 480;
  const std::string bytes = pattern(std::size_t{4} << 10, 12);
  const std::vector<absl::Cord> payloads(kPayloads, flat(bytes));
  // Together they are too large to ride in the frame.
  ASSERT_TRUE(joined.connection->send(Lane::kCalls, make_frame("many", payloads)).ok());
  ASSERT_TRUE(joined.accepted->wait_frames(Lane::kCalls, 1));
  const std::vector<Frame> frames = joined.accepted->take_frames(Lane::kCalls);
  ASSERT_EQ(frames[0].payloads.size(), kPayloads);
  for (const absl::Cord& payload : frames[0].payloads) ASSERT_TRUE(payload == bytes);
}

TEST(GrpcPlane, AFailureLeadsThroughGrpc) {
  const auto plane = std::make_shared<FakePlane>();
  Joined joined(with(plane));
  joined.warm_up();
  plane->behaviour = FakePlane::Behaviour::kFails;
  const std::string bytes = pattern(kLarge, 5);
  std::atomic<int> let_go{0};
  EXPECT_EQ(joined.send(payload_of(bytes, let_go)), bytes);
  EXPECT_EQ(joined.failed(), 1);
  EXPECT_TRUE(eventually([&] { return let_go == 1; }));
  EXPECT_TRUE(eventually([&] { return plane->released == plane->located; }));
  const int located = plane->located;
  EXPECT_EQ(joined.send(flat(bytes)), bytes);
  EXPECT_EQ(plane->located, located) << "the plane does not rest";
  plane->behaviour = FakePlane::Behaviour::kWorks;
  const std::int64_t fetched = joined.fetched();
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(joined.send(flat(bytes)), bytes);
    return joined.fetched() > fetched;
  })) << "it is not tried again";
}

// The bulk lane is there for it, though nothing else needs one.
TEST(GrpcPlane, TheFirstLargePayloadMayBeOneThatCannotBeFetched) {
  const auto plane = std::make_shared<FakePlane>();
  plane->behaviour = FakePlane::Behaviour::kFails;
  const std::string bytes = pattern(kLarge, 6);
  // The ends find out about planes by themselves, after a while that only a slow machine needs all
  // of. If they have not by then, the payload travels without one, and another connection is tried.
  std::chrono::milliseconds pause(10);
  EXPECT_TRUE(eventually([&] {
    Joined joined(with(plane));
    std::this_thread::sleep_for(pause *= 2);
    EXPECT_EQ(joined.send(flat(bytes)), bytes);
    return plane->located > 0;
  }));
}

TEST(GrpcPlane, WhatIsNotAdmittedIsNotFetched) {
  const auto plane = std::make_shared<FakePlane>();
  Worker a(with(plane));
  Worker b(with(plane));
  std::atomic<bool> admits{true};
  b.acceptor.prepare = [&](RecordingHandler& handler) {
    handler.set_announced_hook([&](Lane, absl::string_view, std::uint64_t) {
      return admits ? absl::OkStatus() : absl::InvalidArgumentError("there is no room");
    });
  };
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = a.transport->connect(b.address(), "hi", "", handler);
  ASSERT_TRUE(handler->wait_up());
  const auto accepted = b.acceptor.handler();
  const std::string bytes = pattern(kLarge, 11);
  std::size_t sent = 0;
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(connection->send(Lane::kCalls, make_frame("frame", {flat(bytes)})).ok());
    EXPECT_TRUE(accepted->wait_frames(Lane::kCalls, ++sent));
    return b.transport->counters()["rpc.plane_fetched_tensors"] > 0;
  }));
  plane->behaviour = FakePlane::Behaviour::kWaits;
  admits = false;
  ASSERT_TRUE(connection->send(Lane::kCalls, make_frame("frame", {flat(bytes)})).ok());
  ASSERT_TRUE(accepted->wait_down());
  EXPECT_EQ(accepted->reason().message(), "there is no room");
  EXPECT_TRUE(handler->wait_down());
  EXPECT_EQ(plane->waiting(), 0U);
}

TEST(GrpcPlane, SmallFramesDoNotWaitForAFetch) {
  const auto plane = std::make_shared<FakePlane>();
  Joined joined(with(plane));
  joined.warm_up();
  plane->behaviour = FakePlane::Behaviour::kWaits;
  const std::string bytes = pattern(kLarge, 7);
  ASSERT_TRUE(joined.connection->send(Lane::kCalls, make_frame("large", {flat(bytes)})).ok());
  ASSERT_TRUE(joined.connection->send(Lane::kCalls, make_frame("small")).ok());
  ASSERT_TRUE(joined.accepted->wait_frames(Lane::kCalls, 1));
  EXPECT_THAT(joined.accepted->envelopes(Lane::kCalls), ::testing::ElementsAre("small"));
  ASSERT_TRUE(eventually([&] { return plane->waiting() == 1; }));
  plane->answer_all(absl::OkStatus());
  ASSERT_TRUE(joined.accepted->wait_frames(Lane::kCalls, 2));
  EXPECT_EQ(std::string(joined.accepted->take_frames(Lane::kCalls)[1].payloads.at(0)), bytes);
}

TEST(GrpcPlane, MemoryIsOutOfReachBeforeItIsFreed) {
  const auto plane = std::make_shared<FakePlane>();
  Joined joined(with(plane));
  joined.warm_up();
  plane->behaviour = FakePlane::Behaviour::kWaits;
  const std::string bytes = pattern(kLarge, 8);
  std::atomic<int> closed_when_freed{-1};
  const absl::Cord payload =
      absl::MakeCordFromExternal(bytes, [&] { closed_when_freed = plane->closed.load(); });
  {
    std::vector<absl::Cord> payloads = {payload};
    ASSERT_TRUE(
        joined.connection->send(Lane::kCalls, make_frame("frame", std::move(payloads))).ok());
  }
  ASSERT_TRUE(eventually([&] { return plane->waiting() == 1; }));
  const_cast<absl::Cord&>(payload).Clear();
  EXPECT_EQ(closed_when_freed, -1) << "the receiver is not done with it";
  joined.connection->close(absl::UnavailableError("done"));
  ASSERT_TRUE(joined.handler->wait_down());
  EXPECT_GE(closed_when_freed, 1);
  ASSERT_TRUE(joined.accepted->wait_down());
  // Too late, and no harm.
  plane->answer_all(absl::UnavailableError("late"));
  EXPECT_EQ(joined.accepted->frame_count(Lane::kCalls), 0U);
}

TEST(GrpcPlane, ALocationWithoutSenseEndsTheConnection) {
  const auto plane = std::make_shared<FakePlane>();
  Joined joined(with(plane));
  joined.warm_up();
  plane->behaviour = FakePlane::Behaviour::kRefuses;
  ASSERT_TRUE(
      joined.connection->send(Lane::kCalls, make_frame("frame", {absl::Cord(pattern(kLarge, 9))}))
          .ok());
  ASSERT_TRUE(joined.accepted->wait_down());
  EXPECT_TRUE(absl::IsInvalidArgument(joined.accepted->reason())) << joined.accepted->reason();
}

TEST(GrpcPlane, EndsWithoutACommonPlaneUseTheBulkLane) {
  Worker with_plane(with(nullptr));
  GrpcTransportOptions options;
  options.tuning.same_host_plane = false;
  Worker without(options);
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = with_plane.transport->connect(without.address(), "hi", "", handler);
  ASSERT_TRUE(handler->wait_up());
  const auto accepted = without.acceptor.handler();
  const std::string bytes = pattern(kLarge, 10);
  for (std::size_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(connection->send(Lane::kCalls, make_frame("frame", {flat(bytes)})).ok());
  }
  ASSERT_TRUE(accepted->wait_frames(Lane::kCalls, 50));
  for (Frame& frame : accepted->take_frames(Lane::kCalls)) {
    EXPECT_EQ(std::string(frame.payloads.at(0)), bytes);
  }
  EXPECT_EQ(without.transport->counters()["rpc.plane_fetched_tensors"], 0);
}

TEST(GrpcPlane, AFrameThatThereIsNoMemoryForIsLostAndNothingElse) {
  auto plane = std::make_shared<FakePlane>();
  GrpcTransportOptions options = with(plane);
  options.limits.max_frame_bytes = std::size_t{1} << 61;
  Joined joined(options);
  joined.warm_up();
  // Nobody looks at it: it is located, and for its size there is no memory at the other end.
  constexpr std::size_t kTooMuch = std::size_t{1} << 60;
  static const char kNobodyReads = 0;
  std::atomic<int> let_go{0};
  Frame frame = make_frame(
      "", {absl::MakeCordFromExternal({&kNobodyReads, kTooMuch}, [&let_go] { ++let_go; })});
  frame.header = "header";
  ASSERT_TRUE(joined.connection->send(Lane::kCalls, std::move(frame)).ok());
  const std::vector<RecordingHandler::Lost> lost = joined.accepted->wait_lost();
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].lane, Lane::kCalls);
  EXPECT_EQ(lost[0].header, "header");
  EXPECT_EQ(lost[0].size_bytes, kTooMuch + 6);
  EXPECT_EQ(lost[0].reason.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(eventually([&] { return let_go == 1; }));
  const std::string bytes = pattern(kLarge, 5);
  EXPECT_EQ(joined.send(flat(bytes)), bytes);
  EXPECT_FALSE(joined.accepted->is_down());
}

}  // namespace
}  // namespace sinew::internal
