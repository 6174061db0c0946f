// Windows and limits. A receiver keeps its credits; the sender fills what lies between until it is
// refused.

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/tests/transport/station.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10U;

/// Sends numbered pieces until one is refused, and returns how many were taken.
std::size_t fill(Connection& connection) {
  const absl::Cord piece(pattern(kPiece, 3));
  // Whatever buffers a transport has of its own, they are far smaller than this.
  constexpr std::size_t kEnough = (std::size_t{256} << 20U) / kPiece;
  std::size_t sent = 0;
  // What is under way frees room for a while: full is what stays full.
  auto last_taken = std::chrono::steady_clock::now();
  while (sent < kEnough) {
    const absl::Status status =
        connection.send(Lane::kCalls, make_frame(absl::StrCat(sent), {piece}));
    const auto now = std::chrono::steady_clock::now();
    if (status.ok()) {
      ++sent;
      last_taken = now;
      continue;
    }
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    if (now - last_taken > std::chrono::milliseconds(200)) return sent;
    std::this_thread::yield();
  }
  ADD_FAILURE() << "the window never filled";
  return sent;
}

}  // namespace

TEST_P(TransportConformance, RefusesWhenTheWindowIsFullAndResumes) {
  const Connected pair(*fixture_, small_windows(), RecordingHandler::Credits::kKeep);
  ASSERT_TRUE(pair.ok());
  const std::size_t sent = fill(*pair.from_opener);
  EXPECT_GE(sent, kWindow / kPiece);
  EXPECT_GT(pair.from_opener->queued_bytes(), 0U);
  EXPECT_LT(pair.acceptor->frame_count(Lane::kCalls), sent);

  pair.acceptor->give_back_credits();
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, sent));
  ASSERT_TRUE(send_patiently(*pair.from_opener, Lane::kCalls, make_frame(absl::StrCat(sent))).ok());
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, sent + 1));
  EXPECT_EQ(pair.acceptor->envelopes(Lane::kCalls), numbers(sent + 1));
}

TEST_P(TransportConformance, ControlAndTheOtherWayPassAFullLane) {
  Connected pair(*fixture_, small_windows(), RecordingHandler::Credits::kKeep);
  ASSERT_TRUE(pair.ok());
  const std::size_t sent = fill(*pair.from_opener);
  const std::size_t arrived = pair.acceptor->frame_count(Lane::kCalls);
  ASSERT_LT(arrived, sent);

  ASSERT_TRUE(pair.from_opener->send(Lane::kControl, make_frame("control")).ok());
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kControl, 1));
  ASSERT_TRUE(pair.from_acceptor->send(Lane::kCalls, make_frame("reply")).ok());
  ASSERT_TRUE(pair.from_acceptor->send(Lane::kControl, make_frame("control back")).ok());
  ASSERT_TRUE(pair.opener->wait_frames(Lane::kCalls, 1));
  ASSERT_TRUE(pair.opener->wait_frames(Lane::kControl, 1));

  // So does a second connection between the same two, opened while the first is stuck.
  const Pair second = open(pair.b, pair.a);
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(second.from_opener->send(Lane::kCalls, make_frame("second")).ok());
  ASSERT_TRUE(second.acceptor->wait_frames(Lane::kCalls, 1));
  EXPECT_LT(pair.acceptor->frame_count(Lane::kCalls), sent);
}

TEST_P(TransportConformance, AFrameLargerThanTheWindowPasses) {
  Connected pair(*fixture_, small_windows());
  ASSERT_TRUE(pair.ok());
  const std::string large = pattern(3 * kWindow, 4);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        send_patiently(*pair.from_opener, Lane::kCalls, make_frame("", {absl::Cord(large)})).ok());
  }
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 3));
  for (const Frame& frame : pair.acceptor->take_frames(Lane::kCalls)) {
    EXPECT_TRUE(frame.payloads.at(0) == large);
  }
}

TEST_P(TransportConformance, CreditsMayOutliveConnectionAndTransport) {
  std::vector<Frame> kept;
  {
    Station a(*fixture_);
    Station b(*fixture_);
    Mutex mutex;
    b.acceptor->prepare = [&](RecordingHandler& handler) {
      handler.set_frames_hook([&](const auto&, Lane, std::vector<Frame>& frames) {
        MutexLock lock(mutex);
        for (Frame& frame : frames) {
          kept.push_back(std::move(frame));
          frame = make_frame("");
        }
      });
    };
    a.start();
    b.start();
    const Pair pair = open(a, b);
    ASSERT_TRUE(pair.ok());
    ASSERT_TRUE(pair.from_opener->send(Lane::kCalls, make_frame("x", {absl::Cord("abc")})).ok());
    ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 1));
  }
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].payloads.at(0), "abc");
  kept.clear();
}

TEST_P(TransportConformance, RefusesFramesOverTheLimits) {
  Transport::Limits strict;
  strict.max_frame_bytes = std::size_t{1} << 20U;
  strict.max_payloads = 10;
  const std::vector<absl::Cord> many(11, absl::Cord("x"));
  const std::vector<absl::Cord> large = {absl::Cord(pattern(std::size_t{2} << 20U, 5))};
  for (const std::vector<absl::Cord>& payloads : {many, large}) {
    Station a(*fixture_);
    Station b(*fixture_, strict);
    a.start();
    b.start();
    const Pair pair = open(a, b);
    ASSERT_TRUE(pair.ok());
    // The sender does not know the receiver's limits: the connection goes down.
    const absl::Status sent = pair.from_opener->send(Lane::kCalls, make_frame("bad", payloads));
    EXPECT_TRUE(sent.ok() || absl::IsUnavailable(sent)) << sent;
    EXPECT_TRUE(pair.acceptor->wait_down());
    EXPECT_TRUE(pair.opener->wait_down());
    EXPECT_EQ(pair.acceptor->frame_count(Lane::kCalls), 0U);
  }
}

}  // namespace sinew::internal
