#include "sinew/tests/support/faulty_transport.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/transport/inproc/inproc_transport.h"
#include "sinew/tests/transport/recording_handler.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

Frame make_frame(std::string envelope) {
  Frame frame;
  frame.envelope = std::move(envelope);
  return frame;
}

/// `a` is faulty, `b` is not; nothing moves by itself.
class FaultyTransport : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(a_->start(&a_acceptor_, nullptr).ok());
    ASSERT_TRUE(b_->start(&b_acceptor_, nullptr).ok());
    connection_ = a_->connect("inproc://b", "from a", "", opener_);
    settle();
    ASSERT_TRUE(opener_->is_up());
    acceptor_ = b_acceptor_.handler();
  }
  void TearDown() override {
    a_->shutdown();
    b_->shutdown();
    settle();
  }

  static InprocOptions named(std::string name) {
    InprocOptions options;
    options.name = std::move(name);
    return options;
  }
  void settle() { network_->run_until_idle(); }
  void send(const std::vector<std::string>& envelopes, Lane lane = Lane::kCalls) {
    for (const std::string& envelope : envelopes) {
      ASSERT_TRUE(connection_->send(lane, make_frame(envelope)).ok());
    }
    settle();
  }
  void send_back(const std::vector<std::string>& envelopes, Lane lane = Lane::kCalls) {
    for (const std::string& envelope : envelopes) {
      ASSERT_TRUE(acceptor_->connection()->send(lane, make_frame(envelope)).ok());
    }
    settle();
  }
  std::vector<std::string> arrived() { return acceptor_->envelopes(Lane::kCalls); }
  std::vector<std::string> arrived_back() { return opener_->envelopes(Lane::kCalls); }

  static std::function<bool(const FaultyFrame&)> outgoing(std::string envelope) {
    return [envelope = std::move(envelope)](const FaultyFrame& frame) {
      return frame.direction == FaultDirection::kOutgoing && frame.frame.envelope == envelope;
    };
  }

  std::shared_ptr<InprocNetwork> network_ = std::make_shared<InprocNetwork>(InprocMode::kStepped);
  std::shared_ptr<ManualFaultTimer> timer_ = std::make_shared<ManualFaultTimer>();
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>(/*seed=*/42, timer_);
  RecordingAcceptor a_acceptor_;
  RecordingAcceptor b_acceptor_;
  std::unique_ptr<Transport> a_ =
      make_faulty_transport(make_inproc_transport(network_, named("a")), plan_);
  std::unique_ptr<Transport> b_ = make_inproc_transport(network_, named("b"));
  std::shared_ptr<RecordingHandler> opener_ = std::make_shared<RecordingHandler>();
  std::shared_ptr<RecordingHandler> acceptor_;
  std::shared_ptr<Connection> connection_;
};

TEST_F(FaultyTransport, DropsWhatMatches) {
  FaultRule rule;
  rule.matches = outgoing("2");
  const auto id = plan_->add(rule);
  send({"1", "2", "3", "2"});
  send_back({"2"});
  EXPECT_THAT(arrived(), ElementsAre("1", "3"));
  EXPECT_THAT(arrived_back(), ElementsAre("2"));
  EXPECT_EQ(plan_->hits(id), 2U);
  EXPECT_TRUE(plan_->wait_for_hits(id, 2, milliseconds(0)));
  EXPECT_FALSE(plan_->wait_for_hits(id, 3, milliseconds(0)));
  plan_->remove(id);
  send({"2"});
  EXPECT_THAT(arrived(), ElementsAre("1", "3", "2"));
}

TEST_F(FaultyTransport, ShowsRulesWhatTheyNeed) {
  std::vector<std::string> seen;
  FaultRule rule;
  rule.matches = [&](const FaultyFrame& frame) {
    seen.push_back(absl::StrCat(frame.peer, " ", frame.remote_hello, " ", frame.connection, " ",
                                frame.opened_here, " ",
                                frame.direction == FaultDirection::kIncoming ? "in" : "out", " ",
                                frame.lane == Lane::kControl ? "control" : "calls"));
    return false;
  };
  plan_->add(rule);
  send({"x"});
  send_back({"x"}, Lane::kControl);
  EXPECT_THAT(seen, ElementsAre("inproc://b hello from the acceptor 1 1 out calls",
                                "inproc://b hello from the acceptor 1 1 in control"));
}

TEST_F(FaultyTransport, SkipsAndLimits) {
  FaultRule rule;
  rule.skip = 1;
  rule.limit = 2;
  plan_->add(rule);
  send({"1", "2", "3", "4"});
  EXPECT_THAT(arrived(), ElementsAre("1", "4"));
}

TEST_F(FaultyTransport, TheSeedDecidesWhichFrames) {
  const auto survivors = [](std::uint64_t seed) {
    auto network = std::make_shared<InprocNetwork>(InprocMode::kStepped);
    auto plan = std::make_shared<FaultPlan>(seed);
    FaultRule rule;
    rule.probability = 0.5;
    plan->add(rule);
    auto a = make_faulty_transport(make_inproc_transport(network, named("a")), plan);
    auto b = make_inproc_transport(network, named("b"));
    RecordingAcceptor acceptor;
    EXPECT_TRUE(b->start(&acceptor, nullptr).ok());
    auto handler = std::make_shared<RecordingHandler>();
    const auto connection = a->connect("inproc://b", "", "", handler);
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(connection->send(Lane::kCalls, make_frame(absl::StrCat(i))).ok());
    }
    network->run_until_idle();
    a->shutdown();
    b->shutdown();
    return acceptor.handler()->envelopes(Lane::kCalls);
  };
  EXPECT_EQ(survivors(1), survivors(1));
  EXPECT_NE(survivors(1), survivors(2));
  EXPECT_GT(survivors(1).size(), 25U);
  EXPECT_LT(survivors(1).size(), 75U);
}

TEST_F(FaultyTransport, DelaysInManualTime) {
  FaultRule rule;
  rule.action = FaultAction::kDelay;
  rule.delay = milliseconds(10);
  rule.matches = outgoing("late");
  plan_->add(rule);
  send({"late", "early"});
  EXPECT_THAT(arrived(), ElementsAre("early"));
  timer_->advance(milliseconds(9));
  settle();
  EXPECT_THAT(arrived(), ElementsAre("early"));
  timer_->advance(milliseconds(1));
  settle();
  EXPECT_THAT(arrived(), ElementsAre("early", "late"));
}

TEST_F(FaultyTransport, DelaysWhatArrives) {
  FaultRule rule;
  rule.action = FaultAction::kDelay;
  rule.delay = milliseconds(10);
  rule.limit = 1;
  rule.matches = [](const FaultyFrame& frame) {
    return frame.direction == FaultDirection::kIncoming;
  };
  plan_->add(rule);
  send_back({"late", "early"});
  EXPECT_THAT(arrived_back(), ElementsAre("early"));
  timer_->advance(milliseconds(10));
  EXPECT_THAT(arrived_back(), ElementsAre("early", "late"));
}

TEST_F(FaultyTransport, Duplicates) {
  FaultRule rule;
  rule.action = FaultAction::kDuplicate;
  rule.matches = outgoing("2");
  plan_->add(rule);
  FaultRule later = rule;
  later.matches = outgoing("4");
  later.delay = milliseconds(1);
  plan_->add(later);
  send({"1", "2", "3", "4", "5"});
  EXPECT_THAT(arrived(), ElementsAre("1", "2", "2", "3", "4", "5"));
  timer_->advance(milliseconds(1));
  settle();
  EXPECT_THAT(arrived(), ElementsAre("1", "2", "2", "3", "4", "5", "4"));
}

TEST_F(FaultyTransport, ReordersBothWays) {
  FaultRule rule;
  rule.action = FaultAction::kReorder;
  rule.behind = 2;
  rule.matches = [](const FaultyFrame& frame) { return frame.frame.envelope == "1"; };
  plan_->add(rule);
  send({"1", "2", "3", "4"});
  send_back({"1", "2", "3", "4"});
  EXPECT_THAT(arrived(), ElementsAre("2", "3", "1", "4"));
  EXPECT_THAT(arrived_back(), ElementsAre("2", "3", "1", "4"));
}

TEST_F(FaultyTransport, AReorderedFrameGoesWhenNothingFollows) {
  FaultRule rule;
  rule.action = FaultAction::kReorder;
  rule.delay = milliseconds(5);
  rule.matches = outgoing("1");
  plan_->add(rule);
  send({"1"});
  EXPECT_THAT(arrived(), IsEmpty());
  timer_->advance(milliseconds(5));
  settle();
  EXPECT_THAT(arrived(), ElementsAre("1"));
}

TEST_F(FaultyTransport, HoldsUntilReleased) {
  FaultRule rule;
  rule.action = FaultAction::kHold;
  rule.matches = [](const FaultyFrame& frame) {
    return absl::StartsWith(frame.frame.envelope, "h");
  };
  const auto id = plan_->add(rule);
  send({"h1", "x", "h2"});
  send_back({"h3", "y"});
  EXPECT_THAT(arrived(), ElementsAre("x"));
  EXPECT_THAT(arrived_back(), ElementsAre("y"));
  EXPECT_EQ(plan_->release(id), 3U);
  settle();
  EXPECT_THAT(arrived(), ElementsAre("x", "h1", "h2"));
  EXPECT_THAT(arrived_back(), ElementsAre("y", "h3"));
  EXPECT_EQ(plan_->release(id), 0U);
}

TEST_F(FaultyTransport, HeldFramesAreLostWithTheirConnection) {
  FaultRule rule;
  rule.action = FaultAction::kHold;
  const auto id = plan_->add(rule);
  send({"1"});
  send_back({"2"});
  connection_->close(absl::UnavailableError("enough"));
  settle();
  EXPECT_EQ(plan_->release(id), 0U);
  settle();
  EXPECT_THAT(arrived(), IsEmpty());
  EXPECT_THAT(arrived_back(), IsEmpty());
}

TEST_F(FaultyTransport, BreaksConnections) {
  FaultRule rule;
  rule.action = FaultAction::kBreak;
  rule.matches = outgoing("2");
  plan_->add(rule);
  send({"1"});
  EXPECT_TRUE(connection_->send(Lane::kCalls, make_frame("2")).ok());
  settle();
  EXPECT_THAT(arrived(), ElementsAre("1"));
  EXPECT_TRUE(absl::IsUnavailable(opener_->reason())) << opener_->reason();
  EXPECT_TRUE(absl::IsUnavailable(acceptor_->reason())) << acceptor_->reason();
}

TEST_F(FaultyTransport, BreaksConnectionsByPeer) {
  EXPECT_EQ(plan_->break_connections([](const std::string& peer) { return peer == "inproc://c"; }),
            0U);
  EXPECT_EQ(plan_->break_connections([](const std::string& peer) { return peer == "inproc://b"; }),
            1U);
  settle();
  EXPECT_TRUE(absl::IsUnavailable(opener_->reason()));
  EXPECT_TRUE(absl::IsUnavailable(acceptor_->reason()));
}

TEST_F(FaultyTransport, FailsConnects) {
  const auto id = plan_->fail_connects([](const std::string& to) { return to == "inproc://b"; },
                                       absl::UnavailableError("no route"), 1);
  auto failing = std::make_shared<RecordingHandler>();
  a_->connect("inproc://b", "", "", failing);
  // Not inside connect().
  EXPECT_FALSE(failing->is_down());
  timer_->advance(milliseconds(0));
  EXPECT_EQ(failing->reason(), absl::UnavailableError("no route"));
  EXPECT_EQ(plan_->hits(id), 1U);
  auto working = std::make_shared<RecordingHandler>();
  a_->connect("inproc://b", "", "", working);
  settle();
  EXPECT_TRUE(working->is_up());
}

TEST_F(FaultyTransport, AConnectThatFailsEndsAtShutdownAtTheLatest) {
  plan_->fail_connects(nullptr, absl::UnavailableError("no route"));
  auto failing = std::make_shared<RecordingHandler>();
  a_->connect("inproc://b", "", "", failing);
  a_->shutdown();
  EXPECT_TRUE(failing->is_down());
  failing->forbid_callbacks();
  timer_->advance(milliseconds(0));
}

TEST_F(FaultyTransport, RefusesConnects) {
  plan_->refuse_connects([](const std::string& from) { return from == "inproc://b"; },
                         absl::UnavailableError("go away"));
  auto handler = std::make_shared<RecordingHandler>();
  b_->connect("inproc://a", "", "", handler);
  settle();
  EXPECT_EQ(handler->reason(), absl::UnavailableError("go away"));
}

TEST_F(FaultyTransport, AFrozenWorkerDoesNothing) {
  plan_->freeze();
  send({"1"});
  send_back({"2"});
  auto refused = std::make_shared<RecordingHandler>();
  b_->connect("inproc://a", "", "", refused);
  settle();
  EXPECT_TRUE(absl::IsUnavailable(refused->reason()));
  EXPECT_THAT(arrived(), IsEmpty());
  EXPECT_THAT(arrived_back(), IsEmpty());
  acceptor_->connection()->close(absl::UnavailableError("enough"));
  settle();
  EXPECT_FALSE(opener_->is_down());
  plan_->thaw();
  settle();
  EXPECT_THAT(arrived_back(), ElementsAre("2"));
  EXPECT_TRUE(opener_->is_down());
}

TEST_F(FaultyTransport, AFrozenWorkerCanBeShutDown) {
  plan_->freeze();
  send_back({"1"});
  a_->shutdown();
  EXPECT_TRUE(opener_->is_down());
  opener_->forbid_callbacks();
  plan_->thaw();
}

TEST(FaultyTransportThreaded, KeepsItsPromisesUnderAllFaultsAtOnce) {
  constexpr std::size_t kFrames = 2000;
  auto network = std::make_shared<InprocNetwork>();
  auto plan = std::make_shared<FaultPlan>(/*seed=*/3);
  for (const FaultAction action :
       {FaultAction::kDelay, FaultAction::kDuplicate, FaultAction::kReorder, FaultAction::kDrop}) {
    FaultRule rule;
    rule.action = action;
    rule.probability = 0.1;
    rule.delay = std::chrono::microseconds(action == FaultAction::kDuplicate ? 0 : 50);
    rule.jitter = std::chrono::microseconds(200);
    plan->add(rule);
  }
  InprocOptions options;
  auto a = make_faulty_transport(make_inproc_transport(network), plan);
  auto b = make_faulty_transport(make_inproc_transport(network), plan);
  RecordingAcceptor acceptor;
  ASSERT_TRUE(b->start(&acceptor, nullptr).ok());
  auto handler = std::make_shared<RecordingHandler>();
  const auto connection = a->connect(b->address(), "", "", handler);
  ASSERT_TRUE(handler->wait_up());
  for (std::size_t i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(connection->send(Lane::kCalls, make_frame(absl::StrCat(i))).ok());
    ASSERT_TRUE(acceptor.handler()->wait_up());
    ASSERT_TRUE(
        acceptor.handler()->connection()->send(Lane::kCalls, make_frame(absl::StrCat(i))).ok());
  }
  // Each passes twice, sent and received: about 0.9 * 0.9 * 1.1 * 1.1 of them arrive.
  EXPECT_TRUE(acceptor.handler()->wait_frames(Lane::kCalls, kFrames * 8 / 10));
  EXPECT_TRUE(handler->wait_frames(Lane::kCalls, kFrames * 8 / 10));
  a->shutdown();
  handler->forbid_callbacks();
  b->shutdown();
  acceptor.handler()->forbid_callbacks();
}

}  // namespace
}  // namespace sinew::internal
