// How connections come up and go down.

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "sinew/tests/transport/station.h"

namespace sinew::internal {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

using testing::HasSubstr;

TEST_P(TransportConformance, OpensWithBothHellos) {
  Connected pair(*fixture_);
  ASSERT_TRUE(pair.ok());
  EXPECT_EQ(pair.opener->connection(), pair.from_opener);
  EXPECT_EQ(pair.from_opener->remote_hello(), "hello from the acceptor");
  EXPECT_EQ(pair.from_acceptor->remote_hello(), "hello from the opener");
  EXPECT_EQ(pair.b.acceptor->hellos(), std::vector<std::string>{"hello from the opener"});
  EXPECT_FALSE(pair.b.acceptor->remotes().at(0).address.empty());
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
    Connected pair(*fixture_);
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
  Connected pair(*fixture_);
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

}  // namespace sinew::internal
