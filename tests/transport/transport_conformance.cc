#include "sinew/tests/transport/transport_conformance.h"

#include <array>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "sinew/tests/transport/recording_handler.h"

namespace sinew::internal {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

namespace {

using testing::HasSubstr;

Frame make_frame(std::string envelope, std::vector<absl::Cord> payloads = {}) {
  Frame frame;
  frame.envelope = std::move(envelope);
  frame.payloads = std::move(payloads);
  return frame;
}

/// Bytes that tell their position, so that a piece in the wrong place shows.
std::string pattern(std::size_t bytes, std::size_t seed) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) {
    text[i] = static_cast<char>((i * 31 + (i >> 8U) * 7 + (i >> 16U) + seed) & 0xffU);
  }
  return text;
}

std::vector<std::string> numbers(std::size_t count) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) texts.push_back(absl::StrCat(i));
  return texts;
}

absl::Status send_number(Connection& connection, Lane lane, std::size_t number) {
  return connection.send(lane, make_frame(absl::StrCat(number)));
}

/// One transport and what it accepted.
struct Station {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<RecordingAcceptor> acceptor = std::make_unique<RecordingAcceptor>();
  UnaryHandler* unary = nullptr;

  explicit Station(TransportFixture& fixture, const Transport::Limits& limits = {})
      : transport(fixture.make(limits)) {}
  Station(Station&&) = default;
  ~Station() {
    if (transport != nullptr) transport->shutdown();
  }
  Station& start() {
    const absl::Status started = transport->start(acceptor.get(), unary);
    EXPECT_TRUE(started.ok()) << started;
    return *this;
  }
  std::string address() const { return transport->address(); }
};

/// A connection that is up at both ends.
struct Pair {
  std::shared_ptr<RecordingHandler> opener;
  std::shared_ptr<RecordingHandler> acceptor;
  std::shared_ptr<Connection> from_opener;
  std::shared_ptr<Connection> from_acceptor;

  bool ok() const { return from_opener != nullptr && from_acceptor != nullptr; }
};

Pair open(Station& from, Station& to, std::size_t index = 0,
          std::shared_ptr<RecordingHandler> handler = std::make_shared<RecordingHandler>()) {
  Pair pair;
  pair.opener = std::move(handler);
  pair.from_opener =
      from.transport->connect(to.address(), "hello from the opener", "", pair.opener);
  EXPECT_TRUE(pair.opener->wait_up());
  pair.acceptor = to.acceptor->handler(index);
  if (pair.acceptor == nullptr || !pair.acceptor->wait_up()) {
    ADD_FAILURE() << "the connection was not accepted";
    return pair;
  }
  pair.from_acceptor = pair.acceptor->connection();
  return pair;
}

/// Sends until it works, at most so long as tests wait. Only for sends that must work soon.
absl::Status send_patiently(Connection& connection, Lane lane, Frame frame) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    Frame copy = make_frame(frame.envelope, frame.payloads);
    const absl::Status sent = connection.send(lane, std::move(copy));
    if (!absl::IsResourceExhausted(sent) || std::chrono::steady_clock::now() > deadline)
      return sent;
    std::this_thread::yield();
  }
}

}  // namespace

TEST_P(TransportConformance, OpensWithBothHellos) {
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.start();
  const Pair pair = open(a, b);
  ASSERT_TRUE(pair.ok());
  EXPECT_EQ(pair.opener->connection(), pair.from_opener);
  EXPECT_TRUE(pair.from_opener->opened_here());
  EXPECT_FALSE(pair.from_acceptor->opened_here());
  EXPECT_EQ(pair.from_opener->remote_hello(), "hello from the acceptor");
  EXPECT_EQ(pair.from_acceptor->remote_hello(), "hello from the opener");
  EXPECT_EQ(b.acceptor->hellos(), std::vector<std::string>{"hello from the opener"});
  EXPECT_FALSE(b.acceptor->remotes().at(0).address.empty());
  EXPECT_FALSE(pair.from_opener->remote().address.empty());
}

TEST_P(TransportConformance, HellosMayBeEmptyAndBinary) {
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.acceptor->hello = std::string("\0\xff\n", 3);
  b.start();
  auto handler = std::make_shared<RecordingHandler>();
  a.transport->connect(b.address(), "", "", handler);
  ASSERT_TRUE(handler->wait_up());
  EXPECT_EQ(handler->connection()->remote_hello(), std::string("\0\xff\n", 3));
  EXPECT_EQ(b.acceptor->hellos(), std::vector<std::string>{""});
}

TEST_P(TransportConformance, KeepsTheOrderOfEachLaneBothWays) {
  constexpr std::size_t kFrames = 2000;
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.start();
  const Pair pair = open(a, b);
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
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.start();
  const Pair pair = open(a, b);
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
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.start();
  const Pair pair = open(a, b);
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
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.start();
  const Pair pair = open(a, b);
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
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.start();
  const Pair pair = open(a, b);
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

// Windows. The receiver keeps its credits; the sender fills what lies between until it is refused.

namespace {

constexpr std::size_t kWindow = std::size_t{1} << 20U;
constexpr std::size_t kPiece = std::size_t{64} << 10U;

Transport::Limits small_windows() {
  Transport::Limits limits;
  limits.send_window_bytes = kWindow;
  limits.control_window_bytes = kWindow;
  limits.receive_window_bytes = kWindow;
  return limits;
}

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
  Station a(*fixture_, small_windows());
  Station b(*fixture_, small_windows());
  b.acceptor->credits = RecordingHandler::Credits::kKeep;
  a.start();
  b.start();
  const Pair pair = open(a, b);
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
  Station a(*fixture_, small_windows());
  Station b(*fixture_, small_windows());
  b.acceptor->credits = RecordingHandler::Credits::kKeep;
  a.start();
  b.start();
  const Pair pair = open(a, b);
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
  const Pair second = open(b, a);
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(second.from_opener->send(Lane::kCalls, make_frame("second")).ok());
  ASSERT_TRUE(second.acceptor->wait_frames(Lane::kCalls, 1));
  EXPECT_LT(pair.acceptor->frame_count(Lane::kCalls), sent);
}

TEST_P(TransportConformance, AFrameLargerThanTheWindowPasses) {
  Station a(*fixture_, small_windows());
  Station b(*fixture_, small_windows());
  a.start();
  b.start();
  const Pair pair = open(a, b);
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

TEST_P(TransportConformance, RefusalsReachTheOpener) {
  Station a(*fixture_);
  Station b(*fixture_);
  b.acceptor->refusal = absl::PermissionDeniedError("this is job \"blue\", not \"red\"");
  a.start();
  b.start();
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = a.transport->connect(b.address(), "red", "", handler);
  ASSERT_TRUE(handler->wait_down());
  EXPECT_FALSE(handler->is_up());
  EXPECT_EQ(handler->reason().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(handler->reason().message()),
              HasSubstr("this is job \"blue\", not \"red\""));
  EXPECT_TRUE(absl::IsUnavailable(connection->send(Lane::kCalls, make_frame("late"))));
}

TEST_P(TransportConformance, NobodyListens) {
  Station a(*fixture_);
  a.start();
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = a.transport->connect(fixture_->closed_address(), "", "", handler);
  ASSERT_TRUE(handler->wait_down());
  EXPECT_FALSE(handler->is_up());
  EXPECT_EQ(handler->reason().code(), absl::StatusCode::kNotFound) << handler->reason();
  EXPECT_FALSE(connection->send(Lane::kCalls, make_frame("late")).ok());
}

TEST_P(TransportConformance, ClosesFromEitherEnd) {
  for (const bool opener_closes : {true, false}) {
    Station a(*fixture_);
    Station b(*fixture_);
    a.start();
    b.start();
    const Pair pair = open(a, b);
    ASSERT_TRUE(pair.ok());
    const auto& closing = opener_closes ? pair.opener : pair.acceptor;
    const auto& other = opener_closes ? pair.acceptor : pair.opener;
    closing->connection()->close(absl::UnavailableError("enough"));
    ASSERT_TRUE(closing->wait_down());
    ASSERT_TRUE(other->wait_down());
    EXPECT_EQ(closing->reason().code(), absl::StatusCode::kCancelled) << closing->reason();
    EXPECT_EQ(other->reason().code(), absl::StatusCode::kUnavailable) << other->reason();
    for (const Lane lane : {Lane::kCalls, Lane::kControl}) {
      EXPECT_TRUE(absl::IsUnavailable(closing->connection()->send(lane, make_frame("late"))));
      EXPECT_TRUE(absl::IsUnavailable(other->connection()->send(lane, make_frame("late"))));
    }
  }
}

TEST_P(TransportConformance, ClosingAgainDoesNothing) {
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.start();
  const Pair pair = open(a, b);
  ASSERT_TRUE(pair.ok());
  std::vector<std::thread> closers;
  for (int i = 0; i < 4; ++i) {
    closers.emplace_back([&, i] {
      const auto& connection = i % 2 == 0 ? pair.from_opener : pair.from_acceptor;
      for (int n = 0; n < 10; ++n) connection->close(absl::UnavailableError("enough"));
    });
  }
  for (std::thread& closer : closers) closer.join();
  EXPECT_TRUE(pair.opener->wait_down());
  EXPECT_TRUE(pair.acceptor->wait_down());
  pair.from_opener->close(absl::UnavailableError("late"));
  pair.from_acceptor->close(absl::UnavailableError("late"));
  // on_down twice would fail in the handlers.
}

TEST_P(TransportConformance, ClosesFromInsideACallback) {
  Station a(*fixture_);
  Station b(*fixture_);
  b.acceptor->prepare = [](RecordingHandler& handler) {
    handler.set_frames_hook(
        [](const std::shared_ptr<Connection>& connection, Lane, std::vector<Frame>&) {
          connection->close(absl::UnavailableError("seen enough"));
        });
  };
  a.start();
  b.start();
  const Pair first = open(a, b);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(send_number(*first.from_opener, Lane::kCalls, 0).ok());
  EXPECT_TRUE(first.acceptor->wait_down());
  EXPECT_TRUE(first.opener->wait_down());

  auto second = std::make_shared<RecordingHandler>();
  second->set_up_hook([](const std::shared_ptr<Connection>& connection) {
    connection->close(absl::UnavailableError("changed its mind"));
  });
  a.transport->connect(b.address(), "", "", second);
  EXPECT_TRUE(second->wait_down());
}

TEST_P(TransportConformance, ClosesWhileItConnects) {
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.start();
  for (int i = 0; i < 50; ++i) {
    auto handler = std::make_shared<RecordingHandler>();
    a.transport->connect(b.address(), "", "", handler)->close(absl::UnavailableError("never mind"));
    ASSERT_TRUE(handler->wait_down());
    EXPECT_EQ(handler->reason().code(), absl::StatusCode::kCancelled) << handler->reason();
  }
  // Each that was accepted goes down at that end too; the handlers check it when they go.
  const std::size_t accepted = b.acceptor->count();
  for (std::size_t i = 0; i < accepted; ++i) EXPECT_TRUE(b.acceptor->handler(i)->wait_down());
}

TEST_P(TransportConformance, OpensAgainAfterwards) {
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.start();
  for (std::size_t i = 0; i < 5; ++i) {
    const Pair pair = open(a, b, i);
    ASSERT_TRUE(pair.ok());
    ASSERT_TRUE(send_number(*pair.from_opener, Lane::kCalls, i).ok());
    ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 1));
    EXPECT_EQ(pair.acceptor->envelopes(Lane::kCalls), std::vector<std::string>{absl::StrCat(i)});
    pair.from_opener->close(absl::UnavailableError("next"));
    ASSERT_TRUE(pair.acceptor->wait_down());
    ASSERT_TRUE(pair.opener->wait_down());
  }
}

TEST_P(TransportConformance, ConnectsToItself) {
  Station a(*fixture_);
  a.start();
  const Pair pair = open(a, a);
  ASSERT_TRUE(pair.ok());
  ASSERT_NE(pair.from_opener, pair.from_acceptor);
  ASSERT_TRUE(pair.from_opener->send(Lane::kCalls, make_frame("question")).ok());
  ASSERT_TRUE(pair.from_acceptor->send(Lane::kCalls, make_frame("answer")).ok());
  ASSERT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 1));
  ASSERT_TRUE(pair.opener->wait_frames(Lane::kCalls, 1));
  EXPECT_EQ(pair.acceptor->envelopes(Lane::kCalls), std::vector<std::string>{"question"});
  EXPECT_EQ(pair.opener->envelopes(Lane::kCalls), std::vector<std::string>{"answer"});
  pair.from_opener->close(absl::UnavailableError("enough"));
  EXPECT_TRUE(pair.acceptor->wait_down());
  EXPECT_TRUE(pair.opener->wait_down());
}

TEST_P(TransportConformance, ConnectionsBetweenOnePairAreIndependent) {
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.start();
  const Pair first = open(a, b, 0);
  const Pair second = open(a, b, 1);
  const Pair back = open(b, a, 0);
  ASSERT_TRUE(first.ok() && second.ok() && back.ok());
  ASSERT_TRUE(first.from_opener->send(Lane::kCalls, make_frame("one")).ok());
  ASSERT_TRUE(second.from_opener->send(Lane::kCalls, make_frame("two")).ok());
  ASSERT_TRUE(back.from_opener->send(Lane::kCalls, make_frame("three")).ok());
  ASSERT_TRUE(first.acceptor->wait_frames(Lane::kCalls, 1));
  first.from_opener->close(absl::UnavailableError("enough"));
  ASSERT_TRUE(first.acceptor->wait_down());
  ASSERT_TRUE(second.from_opener->send(Lane::kCalls, make_frame("four")).ok());
  ASSERT_TRUE(second.acceptor->wait_frames(Lane::kCalls, 2));
  ASSERT_TRUE(back.acceptor->wait_frames(Lane::kCalls, 1));
  EXPECT_EQ(second.acceptor->envelopes(Lane::kCalls), (std::vector<std::string>{"two", "four"}));
  EXPECT_EQ(back.acceptor->envelopes(Lane::kCalls), std::vector<std::string>{"three"});
  EXPECT_FALSE(second.opener->is_down());
  EXPECT_FALSE(back.opener->is_down());
}

TEST_P(TransportConformance, ConnectsFromManyThreads) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kEach = 5;
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.start();
  std::vector<std::thread> openers;
  for (std::size_t t = 0; t < kThreads; ++t) {
    openers.emplace_back([&] {
      for (std::size_t i = 0; i < kEach; ++i) {
        auto handler = std::make_shared<RecordingHandler>();
        const auto connection = a.transport->connect(b.address(), "", "", handler);
        EXPECT_TRUE(handler->wait_up());
        connection->close(absl::UnavailableError("enough"));
        EXPECT_TRUE(handler->wait_down());
      }
    });
  }
  for (std::thread& opener : openers) opener.join();
  ASSERT_EQ(b.acceptor->count(), kThreads * kEach);
  for (std::size_t i = 0; i < kThreads * kEach; ++i) {
    EXPECT_TRUE(b.acceptor->handler(i)->wait_down());
  }
}

TEST_P(TransportConformance, ShutsDownWithTrafficInFlight) {
  Station a(*fixture_, small_windows());
  Station b(*fixture_, small_windows());
  a.start();
  b.start();
  const Pair pair = open(a, b);
  ASSERT_TRUE(pair.ok());
  const absl::Cord piece(pattern(4096, 6));
  std::vector<std::thread> senders;
  for (const auto& connection : {pair.from_opener, pair.from_acceptor}) {
    for (const Lane lane : {Lane::kCalls, Lane::kControl}) {
      senders.emplace_back([&piece, connection, lane] {
        while (!absl::IsUnavailable(connection->send(lane, make_frame("x", {piece})))) {
          std::this_thread::yield();
        }
      });
    }
  }
  EXPECT_TRUE(pair.acceptor->wait_frames(Lane::kCalls, 50));
  EXPECT_TRUE(pair.opener->wait_frames(Lane::kControl, 50));
  b.transport->shutdown();
  EXPECT_TRUE(pair.acceptor->is_down());
  pair.acceptor->forbid_callbacks();
  EXPECT_TRUE(pair.opener->wait_down());
  EXPECT_EQ(pair.opener->reason().code(), absl::StatusCode::kUnavailable) << pair.opener->reason();
  for (std::thread& sender : senders) sender.join();
  a.transport->shutdown();
  pair.opener->forbid_callbacks();
  a.transport->shutdown();
}

TEST_P(TransportConformance, AfterItsShutdownNobodyListens) {
  Station a(*fixture_);
  Station b(*fixture_);
  a.start();
  b.start();
  const Pair pair = open(a, b);
  ASSERT_TRUE(pair.ok());
  b.transport->shutdown();
  EXPECT_TRUE(pair.opener->wait_down());
  auto handler = std::make_shared<RecordingHandler>();
  a.transport->connect(b.address(), "", "", handler);
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

namespace {

/// Does one thing with every call.
class UnaryActor : public UnaryHandler {
 public:
  explicit UnaryActor(std::function<void(std::unique_ptr<UnaryCall>)> act) : act_(std::move(act)) {}
  void on_unary_call(std::unique_ptr<UnaryCall> call) override { act_(std::move(call)); }

 private:
  const std::function<void(std::unique_ptr<UnaryCall>)> act_;
};

}  // namespace

TEST_P(TransportConformance, AnswersUnaryCalls) {
  UnaryActor echo([](std::unique_ptr<UnaryCall> call) {
    EXPECT_GT(call->time_left().count(), 0);
    Frame& request = call->request();
    call->reply(make_frame(request.envelope, std::move(request.payloads)));
  });
  Station a(*fixture_);
  a.unary = &echo;
  a.start();
  // Field 1 of Call, a varint: transports that parse requests need valid ones.
  const std::string call("\x08\x07", 2);
  const absl::Cord payload(pattern(100'000, 8));
  const absl::StatusOr<Frame> answer = fixture_->unary_call(
      a.address(), make_frame(call, {payload, absl::Cord()}), std::chrono::seconds(30));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->envelope, call);
  ASSERT_EQ(answer->payloads.size(), 2U);
  EXPECT_TRUE(answer->payloads[0] == payload);
  EXPECT_EQ(answer->payloads[1], "");
}

TEST_P(TransportConformance, FailedUnaryCallsReachTheClient) {
  UnaryActor fails([](std::unique_ptr<UnaryCall> call) {
    call->fail(absl::NotFoundError("no method \"nothing\""));
  });
  Station a(*fixture_);
  a.unary = &fails;
  a.start();
  const absl::StatusOr<Frame> answer =
      fixture_->unary_call(a.address(), make_frame(""), std::chrono::seconds(30));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kNotFound) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("no method \"nothing\""));
}

TEST_P(TransportConformance, DroppedUnaryCallsFail) {
  UnaryActor drops([](std::unique_ptr<UnaryCall> call) { call.reset(); });
  Station a(*fixture_);
  a.unary = &drops;
  a.start();
  const absl::StatusOr<Frame> answer =
      fixture_->unary_call(a.address(), make_frame(""), std::chrono::seconds(30));
  EXPECT_FALSE(answer.ok());
  EXPECT_NE(answer.status().code(), absl::StatusCode::kDeadlineExceeded) << answer.status();
}

TEST_P(TransportConformance, UnaryCallsAreAnsweredLaterFromAnotherThread) {
  Mutex mutex;
  CondVar changed;
  std::unique_ptr<UnaryCall> waiting;
  UnaryActor keeps([&](std::unique_ptr<UnaryCall> call) {
    MutexLock lock(mutex);
    waiting = std::move(call);
    changed.notify_all();
  });
  Station a(*fixture_);
  a.unary = &keeps;
  a.start();
  std::thread worker([&] {
    std::unique_ptr<UnaryCall> call;
    {
      MutexLock lock(mutex);
      if (!wait_patiently(mutex, changed, [&] { return waiting != nullptr; })) return;
      call = std::move(waiting);
    }
    call->reply(make_frame("", {absl::Cord("later")}));
  });
  const absl::StatusOr<Frame> answer =
      fixture_->unary_call(a.address(), make_frame(""), std::chrono::seconds(30));
  worker.join();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->payloads.at(0), "later");
}

TEST_P(TransportConformance, UnaryCallsHearThatTheClientLeft) {
  Happening cancelled;
  Mutex mutex;
  std::unique_ptr<UnaryCall> kept;
  UnaryActor keeps([&](std::unique_ptr<UnaryCall> call) {
    call->notify_on_cancel([&] { cancelled.notify(); });
    MutexLock lock(mutex);
    kept = std::move(call);
  });
  Station a(*fixture_);
  a.unary = &keeps;
  a.start();
  EXPECT_FALSE(
      fixture_->unary_call(a.address(), make_frame(""), std::chrono::milliseconds(100)).ok());
  EXPECT_TRUE(cancelled.wait());
  MutexLock lock(mutex);
  // Too late, and harmless.
  if (kept != nullptr) kept->reply(make_frame(""));
  kept = nullptr;
}

TEST_P(TransportConformance, ShutdownEndsUnansweredUnaryCalls) {
  Mutex mutex;
  CondVar changed;
  std::unique_ptr<UnaryCall> kept;
  UnaryActor keeps([&](std::unique_ptr<UnaryCall> call) {
    MutexLock lock(mutex);
    kept = std::move(call);
    changed.notify_all();
  });
  Station a(*fixture_);
  a.unary = &keeps;
  a.start();
  absl::StatusOr<Frame> answer = make_frame("");
  std::thread client([&] {
    answer = fixture_->unary_call(a.address(), make_frame(""), std::chrono::seconds(30));
  });
  std::unique_ptr<UnaryCall> call;
  {
    MutexLock lock(mutex);
    EXPECT_TRUE(wait_patiently(mutex, changed, [&] { return kept != nullptr; }));
    call = std::move(kept);
  }
  a.transport->shutdown();
  client.join();
  EXPECT_FALSE(answer.ok());
  EXPECT_NE(answer.status().code(), absl::StatusCode::kDeadlineExceeded) << answer.status();
  // The worker may let go of it after the transport.
  call.reset();
}

}  // namespace sinew::internal
