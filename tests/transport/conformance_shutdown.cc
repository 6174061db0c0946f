// The end of a transport.

#include <memory>
#include <thread>
#include <vector>

#include "sinew/tests/transport/station.h"

namespace sinew::internal {

TEST_P(TransportConformance, ShutsDownWithTrafficInFlight) {
  Connected pair(*fixture_);
  ASSERT_TRUE(pair.ok());
  const absl::Cord piece(pattern(4096, 6));
  std::vector<std::thread> senders;
  // A transport takes whatever it is given: senders keep to a window of their own.
  constexpr std::size_t kFramesAhead = 256;
  const auto flood = [&piece](Connection& from, const RecordingHandler& to, Lane lane) {
    for (std::size_t sent = 0;;) {
      if (sent > to.frame_count(lane) + kFramesAhead && !to.is_down()) {
        std::this_thread::yield();
        continue;
      }
      if (absl::IsUnavailable(from.send(lane, make_frame("x", {piece})))) return;
      ++sent;
    }
  };
  for (const Lane lane : {Lane::kCalls, Lane::kControl}) {
    senders.emplace_back([&, lane] { flood(*pair.from_opener, *pair.acceptor, lane); });
    senders.emplace_back([&, lane] { flood(*pair.from_acceptor, *pair.opener, lane); });
  }
  EXPECT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 50));
  EXPECT_TRUE(pair.opener->wait_frames(Lane::kControl, 50));
  pair.b.transport->shutdown();
  EXPECT_TRUE(pair.acceptor->is_down());
  pair.acceptor->forbid_callbacks();
  EXPECT_TRUE(pair.opener->wait_down());
  EXPECT_EQ(pair.opener->reason().code(), absl::StatusCode::kUnavailable) << pair.opener->reason();
  for (std::thread& sender : senders) sender.join();
  pair.a.transport->shutdown();
  pair.opener->forbid_callbacks();
  pair.a.transport->shutdown();
}

TEST_P(TransportConformance, AfterItsShutdownNobodyListens) {
  Connected pair(*fixture_);
  ASSERT_TRUE(pair.ok());
  pair.b.transport->shutdown();
  EXPECT_TRUE(pair.opener->wait_down());
  auto handler = std::make_shared<RecordingHandler>();
  pair.a.transport->connect(pair.b.address(), "", "", handler);
  ASSERT_TRUE(handler->wait_down());
  EXPECT_EQ(handler->reason().code(), absl::StatusCode::kNotFound) << handler->reason();
}

TEST_P(TransportConformance, ShutsDownWhileOthersConnect) {
  Station a(*fixture_);
  a.start();
  for (int round = 0; round < 10; ++round) {
    Station b(*fixture_);
    b.start();
    std::vector<std::shared_ptr<RecordingHandler>> handlers;
    for (int i = 0; i < 8; ++i) {
      handlers.push_back(std::make_shared<RecordingHandler>());
      a.transport->connect(b.address(), "", "", handlers.back());
    }
    b.transport->shutdown();
    for (const auto& handler : handlers) ASSERT_TRUE(handler->wait_down());
  }
}

TEST_P(TransportConformance, ShutsDownUnused) {
  Station never_started(*fixture_);
  never_started.transport->shutdown();
  Station idle(*fixture_);
  idle.start();
  idle.transport->shutdown();
  idle.transport->shutdown();
}

}  // namespace sinew::internal
