#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/transport/inproc/inproc_client.h"
#include "sinew/rpc/transport/inproc/inproc_transport.h"
#include "sinew/tests/transport/recording_handler.h"

namespace sinew::internal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Frame make_frame(std::string envelope, std::vector<absl::Cord> payloads = {}) {
  Frame frame;
  frame.envelope = std::move(envelope);
  frame.payloads = std::move(payloads);
  return frame;
}

InprocOptions named(std::string name) {
  InprocOptions options;
  options.name = std::move(name);
  return options;
}

/// Two workers on a network that is stepped by hand.
class InprocStepped : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(a_->start(&a_acceptor_, nullptr).ok());
    ASSERT_TRUE(b_->start(&b_acceptor_, nullptr).ok());
  }

  std::shared_ptr<Connection> connect() { return a_->connect("inproc://b", "from a", "", opener_); }
  std::shared_ptr<Connection> connect_fully() {
    auto connection = connect();
    network_->run_until_idle();
    EXPECT_TRUE(opener_->is_up());
    return connection;
  }

  std::shared_ptr<InprocNetwork> network_ = std::make_shared<InprocNetwork>(InprocMode::kStepped);
  RecordingAcceptor a_acceptor_;
  RecordingAcceptor b_acceptor_;
  std::unique_ptr<Transport> a_ = make_inproc_transport(network_, named("a"));
  std::unique_ptr<Transport> b_ = make_inproc_transport(network_, named("b"));
  std::shared_ptr<RecordingHandler> opener_ = std::make_shared<RecordingHandler>();
};

TEST_F(InprocStepped, NothingMovesBetweenSteps) {
  const auto connection = connect();
  EXPECT_EQ(b_acceptor_.count(), 0U);
  ASSERT_TRUE(network_->step());  // on_connection and on_up at b
  EXPECT_TRUE(b_acceptor_.handler()->is_up());
  EXPECT_FALSE(opener_->is_up());
  ASSERT_TRUE(network_->step());  // on_up at a
  EXPECT_TRUE(opener_->is_up());
  EXPECT_FALSE(network_->step());

  ASSERT_TRUE(connection->send(Lane::kCalls, make_frame("one")).ok());
  ASSERT_TRUE(connection->send(Lane::kCalls, make_frame("two")).ok());
  EXPECT_EQ(b_acceptor_.handler()->frame_count(Lane::kCalls), 0U);
  EXPECT_EQ(network_->run_until_idle(), 1U);
  EXPECT_THAT(b_acceptor_.handler()->envelopes(Lane::kCalls), ElementsAre("one", "two"));
}

TEST_F(InprocStepped, AFrameMayBeSentBeforeTheConnectionIsUp) {
  const auto connection = connect();
  ASSERT_TRUE(connection->send(Lane::kCalls, make_frame("early")).ok());
  network_->run_until_idle();
  EXPECT_THAT(b_acceptor_.handler()->envelopes(Lane::kCalls), ElementsAre("early"));
}

TEST_F(InprocStepped, PayloadsShareMemoryWithWhatWasSent) {
  const auto connection = connect_fully();
  const std::string bytes(100'000, 'x');
  bool released = false;
  absl::Cord payload = absl::MakeCordFromExternal(absl::string_view(bytes.data(), bytes.size()),
                                                  [&released] { released = true; });
  ASSERT_TRUE(connection->send(Lane::kCalls, make_frame("", {std::move(payload)})).ok());
  network_->run_until_idle();
  std::vector<Frame> frames = b_acceptor_.handler()->take_frames(Lane::kCalls);
  ASSERT_TRUE(frames.at(0).payloads.at(0).TryFlat().has_value());
  EXPECT_EQ(frames[0].payloads[0].TryFlat()->data(), bytes.data());
  EXPECT_FALSE(released);
  frames.clear();
  EXPECT_TRUE(released);
}

TEST_F(InprocStepped, TheChooserDecidesWhatHappensNext) {
  const auto connection = connect_fully();
  ASSERT_TRUE(connection->send(Lane::kCalls, make_frame("call")).ok());
  ASSERT_TRUE(connection->send(Lane::kControl, make_frame("control")).ok());
  const std::vector<InprocEvent> events = network_->events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].lane, Lane::kCalls);
  EXPECT_EQ(events[1].lane, Lane::kControl);
  EXPECT_EQ(events[1].kind, InprocEvent::Kind::kFrames);
  EXPECT_EQ(events[1].at, "inproc://b");
  EXPECT_EQ(events[1].from, "inproc://a");
  EXPECT_EQ(events[1].connection, 1U);
  EXPECT_FALSE(events[1].at_opener);
  network_->set_chooser([](const std::vector<InprocEvent>& choice) { return choice.size() - 1; });
  ASSERT_TRUE(network_->step());
  EXPECT_EQ(b_acceptor_.handler()->frame_count(Lane::kCalls), 0U);
  EXPECT_EQ(b_acceptor_.handler()->frame_count(Lane::kControl), 1U);
}

TEST(InprocSteppedRun, TheSameSeedGivesTheSameRun) {
  const auto run = [](std::uint64_t seed) {
    auto network = std::make_shared<InprocNetwork>(InprocMode::kStepped);
    network->set_max_frames_per_event(1);
    std::vector<std::string> log;
    network->set_chooser(
        [&log, random = std::mt19937_64(seed)](const std::vector<InprocEvent>& events) mutable {
          const std::size_t chosen = random() % events.size();
          const InprocEvent& event = events[chosen];
          log.push_back(absl::StrCat(static_cast<int>(event.kind), event.at, event.connection,
                                     static_cast<int>(event.lane)));
          return chosen;
        });
    RecordingAcceptor acceptor;
    auto a = make_inproc_transport(network, named("a"));
    auto b = make_inproc_transport(network, named("b"));
    EXPECT_TRUE(b->start(&acceptor, nullptr).ok());
    std::vector<std::shared_ptr<RecordingHandler>> handlers;
    for (int i = 0; i < 3; ++i) {
      handlers.push_back(std::make_shared<RecordingHandler>());
      const auto connection = a->connect("inproc://b", "", "", handlers.back());
      for (int n = 0; n < 10; ++n) {
        EXPECT_TRUE(
            connection->send(n % 2 == 0 ? Lane::kCalls : Lane::kControl, make_frame("x")).ok());
      }
    }
    network->run_until_idle();
    a->shutdown();
    b->shutdown();
    return log;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
}

TEST_F(InprocStepped, BrokenConnectionsGoDownAtBothEnds) {
  const auto connection = connect_fully();
  ASSERT_TRUE(connection->send(Lane::kCalls, make_frame("lost or not")).ok());
  EXPECT_EQ(network_->break_connections("inproc://b", "inproc://a"), 1U);
  EXPECT_EQ(network_->break_connections("inproc://b", "inproc://a"), 0U);
  EXPECT_TRUE(absl::IsUnavailable(connection->send(Lane::kCalls, make_frame("late"))));
  network_->run_until_idle();
  EXPECT_TRUE(absl::IsUnavailable(opener_->reason()));
  EXPECT_TRUE(absl::IsUnavailable(b_acceptor_.handler()->reason()));
}

TEST_F(InprocStepped, AConnectionMayBreakDuringItsHandshake) {
  connect();
  EXPECT_TRUE(network_->break_connection(1));
  EXPECT_FALSE(network_->break_connection(1));
  network_->run_until_idle();
  EXPECT_FALSE(opener_->is_up());
  EXPECT_TRUE(absl::IsUnavailable(opener_->reason()));
  EXPECT_EQ(b_acceptor_.count(), 0U);

  auto second = std::make_shared<RecordingHandler>();
  a_->connect("inproc://b", "", "", second);
  ASSERT_TRUE(network_->step());
  EXPECT_TRUE(network_->break_connection(2));
  network_->run_until_idle();
  EXPECT_FALSE(second->is_up());
  EXPECT_TRUE(second->is_down());
  EXPECT_TRUE(b_acceptor_.handler()->is_down());
}

TEST_F(InprocStepped, TheOpenerMayCloseWhileTheAcceptorDecides) {
  std::shared_ptr<Connection> connection;
  b_acceptor_.prepare = [&](RecordingHandler&) {
    network_->break_connections("inproc://a", "inproc://b");
  };
  connect();
  network_->run_until_idle();
  EXPECT_FALSE(opener_->is_up());
  EXPECT_TRUE(b_acceptor_.handler()->is_up());
  EXPECT_TRUE(b_acceptor_.handler()->is_down());
}

TEST_F(InprocStepped, AFrozenWorkerTakesInAndDoesNothing) {
  const auto connection = connect_fully();
  network_->freeze("inproc://b");
  ASSERT_TRUE(connection->send(Lane::kCalls, make_frame("x")).ok());
  auto second = std::make_shared<RecordingHandler>();
  a_->connect("inproc://b", "", "", second);
  EXPECT_EQ(network_->run_until_idle(), 0U);
  network_->thaw("inproc://b");
  network_->run_until_idle();
  EXPECT_THAT(b_acceptor_.handler()->envelopes(Lane::kCalls), ElementsAre("x"));
  EXPECT_TRUE(second->is_up());
}

TEST_F(InprocStepped, ShutdownRunsItsOwnLastCallbacks) {
  connect_fully();
  b_->shutdown();
  EXPECT_TRUE(absl::IsCancelled(b_acceptor_.handler()->reason()));
  EXPECT_FALSE(opener_->is_down());
  network_->run_until_idle();
  EXPECT_TRUE(absl::IsUnavailable(opener_->reason()));
  EXPECT_THAT(network_->events(), IsEmpty());
}

TEST_F(InprocStepped, ANameIsTakenOnce) {
  auto twin = make_inproc_transport(network_, named("b"));
  const absl::Status started = twin->start(&a_acceptor_, nullptr);
  EXPECT_TRUE(absl::IsAlreadyExists(started));
  EXPECT_THAT(std::string(started.message()), testing::HasSubstr("inproc://b"));
  b_->shutdown();
  EXPECT_TRUE(twin->start(&a_acceptor_, nullptr).ok());
  opener_->disarm();
}

TEST_F(InprocStepped, ForeignAddressesAreRefusedWithTheirText) {
  a_->connect("dns:host:1", "", "", opener_);
  network_->run_until_idle();
  EXPECT_TRUE(absl::IsInvalidArgument(opener_->reason()));
  EXPECT_THAT(std::string(opener_->reason().message()), testing::HasSubstr("dns:host:1"));
}

TEST_F(InprocStepped, ProvenNamesAreSeenAndChecked) {
  InprocOptions options = named("c");
  options.proven_names = {"trainer", "trainer.example"};
  auto c = make_inproc_transport(network_, std::move(options));
  RecordingAcceptor acceptor;
  ASSERT_TRUE(c->start(&acceptor, nullptr).ok());
  a_->connect("inproc://c", "", "trainer.example", opener_);
  auto wrong = std::make_shared<RecordingHandler>();
  a_->connect("inproc://c", "", "observer", wrong);
  network_->run_until_idle();
  ASSERT_TRUE(opener_->is_up());
  EXPECT_TRUE(opener_->connection()->remote().authenticated);
  EXPECT_THAT(opener_->connection()->remote().names, ElementsAre("trainer", "trainer.example"));
  EXPECT_FALSE(acceptor.remotes().at(0).authenticated);
  EXPECT_TRUE(absl::IsUnauthenticated(wrong->reason())) << wrong->reason();
  c->shutdown();
  network_->run_until_idle();
}

TEST_F(InprocStepped, WhatAShutTransportIsAskedForComesToNothing) {
  a_->shutdown();
  opener_->disarm();
  const auto connection = connect();
  EXPECT_TRUE(absl::IsUnavailable(connection->send(Lane::kCalls, make_frame("x"))));
  connection->close(absl::UnavailableError("x"));
  EXPECT_EQ(network_->run_until_idle(), 0U);
}

TEST(InprocThreaded, AConnectToAFrozenWorkerTimesOut) {
  auto network = std::make_shared<InprocNetwork>();
  InprocOptions options = named("a");
  options.limits.connect_timeout = std::chrono::milliseconds(20);
  auto a = make_inproc_transport(network, std::move(options));
  auto b = make_inproc_transport(network, named("b"));
  RecordingAcceptor acceptor;
  ASSERT_TRUE(b->start(&acceptor, nullptr).ok());
  network->freeze("inproc://b");
  auto handler = std::make_shared<RecordingHandler>();
  a->connect("inproc://b", "", "", handler);
  ASSERT_TRUE(handler->wait_down());
  EXPECT_FALSE(handler->is_up());
  EXPECT_TRUE(absl::IsUnavailable(handler->reason())) << handler->reason();
  b->shutdown();
  EXPECT_EQ(acceptor.count(), 0U);
}

}  // namespace
}  // namespace sinew::internal
