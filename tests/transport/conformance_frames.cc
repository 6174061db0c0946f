// Frames between two workers: order, payloads, and what is delivered together.

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sinew/tests/transport/station.h"

namespace sinew::internal {

TEST_P(TransportConformance, KeepsTheOrderOfEachLaneBothWays) {
  constexpr std::size_t kFrames = 2000;
  Connected pair(*fixture_);
  ASSERT_TRUE(pair.ok());
  for (std::size_t i = 0; i < kFrames; ++i) {
    for (const Lane lane : {Lane::kCalls, Lane::kControl}) {
      ASSERT_TRUE(send_number(*pair.from_opener, lane, i).ok());
      ASSERT_TRUE(send_number(*pair.from_acceptor, lane, i).ok());
    }
  }
  for (const Lane lane : {Lane::kCalls, Lane::kControl}) {
    for (const auto& receiver : {pair.opener, pair.acceptor}) {
      ASSERT_TRUE(receiver->wait_frames(lane, kFrames));
      EXPECT_EQ(receiver->envelopes(lane), numbers(kFrames));
    }
  }
}

TEST_P(TransportConformance, TakesFramesFromManyThreads) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kFrames = 1000;
  Connected pair(*fixture_);
  ASSERT_TRUE(pair.ok());
  std::vector<std::thread> senders;
  for (std::size_t t = 0; t < kThreads; ++t) {
    senders.emplace_back([&, t] {
      for (std::size_t i = 0; i < kFrames; ++i) {
        EXPECT_TRUE(pair.from_opener->send(Lane::kCalls, make_frame(absl::StrCat(t, " ", i))).ok());
      }
    });
  }
  for (std::thread& sender : senders) sender.join();
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, kThreads * kFrames));
  std::array<std::size_t, kThreads> next{};
  for (const std::string& envelope : pair.acceptor->envelopes(Lane::kCalls)) {
    const std::vector<std::string> parts = absl::StrSplit(envelope, ' ');
    std::size_t thread = kThreads;
    std::size_t number = 0;
    ASSERT_EQ(parts.size(), 2U);
    ASSERT_TRUE(absl::SimpleAtoi(parts[0], &thread) && absl::SimpleAtoi(parts[1], &number));
    ASSERT_LT(thread, kThreads);
    ASSERT_EQ(number, next[thread]++) << "frames of thread " << thread << " changed places";
  }
}

TEST_P(TransportConformance, DeliversTogetherWhatWaitsTogether) {
  if (!GetParam().coalesces) GTEST_SKIP() << GetParam() << " delivers frames one by one";
  constexpr std::size_t kFrames = 500;
  Station a(*fixture_);
  Station b(*fixture_);
  Happening sent_all;
  std::atomic<bool> first{true};
  b.acceptor->prepare = [&](RecordingHandler& handler) {
    handler.set_frames_hook([&](const auto&, Lane, std::vector<Frame>&) {
      if (first.exchange(false)) {
        EXPECT_TRUE(sent_all.wait());
      }
    });
  };
  a.start();
  b.start();
  const Pair pair = open(a, b);
  ASSERT_TRUE(pair.ok());
  for (std::size_t i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(send_number(*pair.from_opener, Lane::kCalls, i).ok());
  }
  sent_all.notify();
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, kFrames));
  EXPECT_EQ(pair.acceptor->envelopes(Lane::kCalls), numbers(kFrames));
  EXPECT_LT(pair.acceptor->batches().size(), kFrames / 2);
}

TEST_P(TransportConformance, MovesLargePayloads) {
  const std::string large = pattern(std::size_t{64} << 20U, 1);
  const std::string odd = pattern((std::size_t{1} << 20U) + 12345, 2);
  Connected pair(*fixture_);
  ASSERT_TRUE(pair.ok());
  ASSERT_TRUE(pair.from_opener
                  ->send(Lane::kCalls, make_frame("first", {absl::Cord(large), absl::Cord(odd)}))
                  .ok());
  ASSERT_TRUE(pair.from_opener->send(Lane::kCalls, make_frame("second")).ok());
  ASSERT_TRUE(pair.from_acceptor->send(Lane::kCalls, make_frame("back", {absl::Cord(odd)})).ok());
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 2));
  ASSERT_TRUE(pair.opener->wait_frames(Lane::kCalls, 1));
  std::vector<Frame> frames = pair.acceptor->take_frames(Lane::kCalls);
  ASSERT_EQ(frames.size(), 2U);
  // A frame that waits for large payloads may be overtaken: see Lane.
  if (frames[0].envelope == "second") std::swap(frames[0], frames[1]);
  EXPECT_EQ(frames[0].envelope, "first");
  EXPECT_EQ(frames[1].envelope, "second");
  ASSERT_EQ(frames[0].payloads.size(), 2U);
  // Not EXPECT_EQ: it would print them.
  EXPECT_TRUE(frames[0].payloads[0] == large);
  EXPECT_TRUE(frames[0].payloads[1] == odd);
  EXPECT_TRUE(frames[1].payloads.empty());
  EXPECT_TRUE(pair.opener->take_frames(Lane::kCalls)[0].payloads.at(0) == odd);
}

TEST_P(TransportConformance, KeepsEmptyEnvelopesAndPayloads) {
  Connected pair(*fixture_);
  ASSERT_TRUE(pair.ok());
  for (const Lane lane : {Lane::kCalls, Lane::kControl}) {
    ASSERT_TRUE(pair.from_opener->send(lane, make_frame("")).ok());
    ASSERT_TRUE(
        pair.from_opener->send(lane, make_frame("", {absl::Cord(), absl::Cord("x"), absl::Cord()}))
            .ok());
    ASSERT_TRUE(pair.acceptor->wait_frames(lane, 2));
    const std::vector<Frame> frames = pair.acceptor->take_frames(lane);
    EXPECT_EQ(frames[0].envelope, "");
    EXPECT_TRUE(frames[0].payloads.empty());
    EXPECT_EQ(frames[1].envelope, "");
    ASSERT_EQ(frames[1].payloads.size(), 3U);
    EXPECT_EQ(frames[1].payloads[0], "");
    EXPECT_EQ(frames[1].payloads[1], "x");
    EXPECT_EQ(frames[1].payloads[2], "");
  }
}

TEST_P(TransportConformance, MovesManyPayloads) {
  constexpr std::size_t kPayloads = 5000;
  std::vector<absl::Cord> payloads;
  for (std::size_t i = 0; i < kPayloads; ++i) payloads.emplace_back(pattern(i % 97, i));
  Connected pair(*fixture_);
  ASSERT_TRUE(pair.ok());
  ASSERT_TRUE(pair.from_opener->send(Lane::kCalls, make_frame("many", payloads)).ok());
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 1));
  const std::vector<Frame> frames = pair.acceptor->take_frames(Lane::kCalls);
  EXPECT_EQ(frames[0].envelope, "many");
  EXPECT_EQ(frames[0].payloads, payloads);
}

TEST_P(TransportConformance, AnswersFromInsideACallback) {
  constexpr std::size_t kFrames = 300;
  Station a(*fixture_);
  Station b(*fixture_);
  b.acceptor->prepare = [](RecordingHandler& handler) {
    handler.set_up_hook([](const std::shared_ptr<Connection>& connection) {
      EXPECT_TRUE(connection->send(Lane::kControl, make_frame("from on_up")).ok());
    });
    handler.set_frames_hook(
        [](const std::shared_ptr<Connection>& connection, Lane lane, std::vector<Frame>& frames) {
          for (const Frame& frame : frames) {
            EXPECT_TRUE(connection->send(lane, make_frame(frame.envelope, frame.payloads)).ok());
          }
        });
  };
  a.start();
  b.start();
  const Pair pair = open(a, b);
  ASSERT_TRUE(pair.ok());
  for (std::size_t i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(send_number(*pair.from_opener, Lane::kCalls, i).ok());
  }
  ASSERT_TRUE(pair.opener->wait_frames(Lane::kCalls, kFrames));
  EXPECT_EQ(pair.opener->envelopes(Lane::kCalls), numbers(kFrames));
  ASSERT_TRUE(pair.opener->wait_frames(Lane::kControl, 1));
  EXPECT_EQ(pair.opener->envelopes(Lane::kControl), std::vector<std::string>{"from on_up"});
}

}  // namespace sinew::internal
