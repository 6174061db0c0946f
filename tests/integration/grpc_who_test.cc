// Who somebody is on a link (docs/link.md, "Who"): whoever comes with a name, an incarnation, a
// rank or a link that is not its own touches nothing of those to whom they belong. With mutual TLS
// a name is what the certificate proves; without, a link keeps to whoever made it.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/membership.pb.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rref.pb.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/integration/secured_test.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/faulty_transport.h"
#include "sinew/tests/support/raw_asker.h"
#include "sinew/tests/support/raw_peer.h"
#include "sinew/tests/support/reference_messages.h"

using sinew::RRef;
using sinew::Worker;
using sinew::WorkerInfo;
using sinew::internal::FaultPlan;
using sinew::internal::FrameKind;
using sinew::internal::LinkHeader;
using sinew::testing::eventually;
using sinew::testing::Handshake;
using sinew::testing::ids_of;
using sinew::testing::RawAsker;
using sinew::testing::RawPeer;
using testapp::Counter;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kFar = std::uint64_t{1} << 40;

/// worker0 has a call at work at worker1, holds a reference there and owns one that worker1 holds.
class Who : public sinew::testing::SecuredTest {
 protected:
  void SetUp() override {
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(3);
    options.transport = sinew::testing::ClusterTransport::kGrpc;
    options.methods = testapp::methods();
    options.tweak = [this](int, sinew::WorkerOptions& worker) {
      worker.credentials = credentials(worker.name);
    };
    sinew::testing::wrap_transports(
        options, [this](int rank, std::unique_ptr<sinew::internal::Transport> inner) {
          if (rank != 0) return inner;
          return sinew::internal::make_faulty_transport(std::move(inner), plan_);
        });
    cluster_ = std::make_unique<sinew::testing::Cluster>(std::move(options));
    running_ = worker(0).peer(1).async<&testapp::stall>();
    held_ = worker(0).peer(1).remote<Counter>(1);
    held_.created().wait();
    owned_ = sinew::share_rref(worker(0), std::make_shared<Counter>(5));
    worker(0).peer(1).call<&testapp::keep>("of worker0", owned_);
    ASSERT_TRUE(eventually([&] { return worker(0).peer(1).call<&testapp::stalled>() == 1; }));
  }

  /// Nothing of worker0 has been touched at worker1. The tables of all workers end up empty.
  void TearDown() override {
    if (cluster_ == nullptr) return;
    EXPECT_FALSE(running_.done()) << "the call has been ended";
    worker(2).peer(1).call<&testapp::release>();
    EXPECT_EQ(running_.wait(), 1);
    EXPECT_EQ(worker(1).counters()["rref.forks"], 1);
    EXPECT_EQ(worker(0).counters()["rref.forks"], 1);
    EXPECT_EQ(held_.call<&Counter::add>(1), 2);
    EXPECT_EQ(worker(2).peer(1).call<&testapp::add_to_kept>("of worker0", 1), 6);
    for (int rank = 0; rank < cluster_->size(); ++rank) {
      EXPECT_EQ(worker(rank).workers().size(), 3u);
      EXPECT_EQ(worker(rank).peer(0).name(), "worker0");
      EXPECT_EQ(worker(rank).peer(0).info(), worker(0).info());
      EXPECT_TRUE(worker(rank).peer(0).alive());
    }
    worker(0).peer(1).call<&testapp::drop>("of worker0");
    held_ = sinew::RRef<Counter>();
    owned_ = sinew::RRef<Counter>();
    cluster_->shutdown();
  }

  const Worker& worker(int rank) const { return cluster_->worker(rank); }
  std::string victim() const { return worker(1).address(); }

  /// Says all that could harm worker0 if it were taken for its word.
  void do_harm(RawPeer& peer) {
    peer.send_link([](LinkHeader& header) {
      for (auto& lane : header.received) lane.push_back({1, kFar});
      header.returned_frames = kFar;
      header.returned_bytes = kFar;
      header.beat_reply = kFar;
    });
    sinew::proto::Envelope envelope;
    for (std::uint64_t id = 1; id <= 64; ++id) {
      envelope.mutable_cancel()->set_id(id);
      envelope.mutable_cancel()->set_number(id);
      peer.send(FrameKind::kControl, envelope);
      envelope.mutable_reply()->set_id(id);
      envelope.mutable_reply()->mutable_value()->set_integer(666);
      peer.send(FrameKind::kReply, envelope);
      peer.send(FrameKind::kControl, envelope);
    }
    sinew::proto::LedgerNote note;
    sinew::proto::LedgerMessage& message = *note.add_messages();
    *message.mutable_delete_fork()->mutable_rref() = ids_of(held_).rref();
    *message.mutable_delete_fork()->mutable_fork() = ids_of(held_).fork();
    peer.send_note("rref", note.SerializeAsString());
    sinew::proto::WorkerIdentity lost;
    sinew::internal::write_identity(worker(0).info(), lost);
    envelope.mutable_call()->set_id(1000);
    envelope.mutable_call()->set_method("sinew.member.lost");
    envelope.mutable_call()->add_arguments()->set_binary(lost.SerializeAsString());
    peer.send(FrameKind::kControl, envelope);
    EXPECT_TRUE(peer.control_call("sinew.worker.heard").ok());
    EXPECT_TRUE(peer.wait_receipts());
  }
  /// It has heard nothing but that its own question was answered.
  static void expect_heard_nothing(const RawPeer& peer) {
    for (const sinew::proto::Envelope& envelope : peer.heard()) {
      EXPECT_TRUE(envelope.has_reply()) << envelope.ShortDebugString();
      EXPECT_TRUE(envelope.reply().value().has_binary()) << envelope.ShortDebugString();
    }
    EXPECT_LE(peer.heard().size(), 1u);
  }

  /// All ways of coming in somebody else's name.
  std::vector<Handshake> thefts(const WorkerInfo& whose) const {
    std::vector<Handshake> all;
    using Signature = Handshake::Signature;
    for (const Signature signature : {Signature::kNone, Signature::kWrong, Signature::kOwn}) {
      all.push_back({signature, {}});
      all.push_back({signature, [whose](sinew::proto::Hello& hello) {
                       hello.set_attempt(kFar);
                       hello.set_last_up_opener(whose.incarnation.value);
                       hello.set_last_up_attempt(1);
                       for (auto* numbers :
                            {hello.mutable_received_control(), hello.mutable_received_calls()}) {
                         numbers->Add(1);
                         numbers->Add(kFar);
                       }
                     }});
    }
    return all;
  }
  void expect_refused(RawPeer& thief) {
    thief.set_peer(worker(1).info());
    for (const Handshake& handshake : thefts(thief.claims())) {
      const absl::Status refused = thief.connect(victim(), handshake);
      EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
      EXPECT_EQ(thief.refused_as(), sinew::proto::NOT_ALLOWED) << refused;
    }
  }

  // Of worker0's transport.
  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>(/*seed=*/1);
  std::unique_ptr<sinew::testing::Cluster> cluster_;
  sinew::Future<int> running_;
  RRef<Counter> held_;
  RRef<Counter> owned_;
};
SINEW_INSTANTIATE_SECURED_TEST(Who);

TEST_P(Who, ANameThatIsNotInTheJobLearnsNoIncarnations) {
  RawAsker outsider({"outsider", -1, {}}, credentials("outsider"));
  ASSERT_TRUE(outsider.open(worker(0).address()).ok());
  for (const sinew::internal::registry::Request& question :
       std::vector<sinew::internal::registry::Request>{
           sinew::internal::registry::Renew{}, sinew::internal::registry::Enter{1, "all", {}, ""},
           outsider.join_as(0, 3)}) {
    outsider.say(question);
  }
  // A request that is refused says no incarnations either.
  const auto refused = outsider.wait<sinew::internal::registry::Refused>();
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->why.code(), absl::StatusCode::kAlreadyExists) << refused->why;
  const std::string bytes = outsider.heard_bytes();
  // But its own, as whoever answers says it.
  for (int of = 1; of < 3; ++of) {
    const std::uint64_t incarnation = worker(of).info().incarnation.value;
    std::string raw(8, '\0');
    for (int i = 0; i < 8; ++i) raw[i] = static_cast<char>(incarnation >> (8 * i));
    EXPECT_THAT(bytes, Not(HasSubstr(raw)));
    EXPECT_THAT(bytes, Not(HasSubstr(absl::StrCat(absl::Hex(incarnation)))));
    EXPECT_THAT(bytes, Not(HasSubstr(absl::StrCat(incarnation))));
  }
}

TEST_P(Who, AnothersNameAndIncarnation) {
  RawPeer thief(worker(0).info(), credentials("stranger"));
  expect_refused(thief);
  // Nor under any other name, of a member or of its own.
  RawPeer other({"worker2", 2, worker(0).info().incarnation}, credentials("stranger"));
  expect_refused(other);
  RawPeer cuckoo({"cuckoo", 0, worker(0).info().incarnation}, credentials("cuckoo"));
  expect_refused(cuckoo);
  RawPeer mirror({"mirror", -1, worker(1).info().incarnation}, credentials("mirror"));
  expect_refused(mirror);
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
}

// Whoever comes first is not believed for that.
TEST_P(Who, AMembersFirstContactIsItsOwn) {
  RawPeer thief(worker(2).info(), credentials("stranger"));
  expect_refused(thief);
  EXPECT_EQ(worker(2).peer(1).call<&testapp::add>(1, 2), 3);
  expect_refused(thief);
  EXPECT_EQ(worker(1).peer(2).call<&testapp::add>(1, 2), 3);
}

TEST_P(Who, AMembersNameWithAnIncarnationOfItsOwn) {
  RawPeer other({"worker2", 2, {}}, credentials("stranger"));
  if (proves_names()) {
    expect_refused(other);
    return;
  }
  // Nobody can tell who it is; it is no member.
  Handshake brief;
  brief.change = [](sinew::proto::Hello& hello) {
    hello.set_beat_interval_us(300000);
    hello.set_lease_us(2000000);
  };
  ASSERT_TRUE(other.connect(victim(), brief).ok());
  do_harm(other);
  expect_heard_nothing(other);
  EXPECT_EQ(worker(2).peer(1).call<&testapp::add>(1, 2), 3);
  // The end of its link is nobody's loss.
  other.fall_silent();
  EXPECT_TRUE(other.wait_down());
  EXPECT_TRUE(other.wait_ended(victim()));
  expect_heard_nothing(other);
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
}

TEST_P(Who, ARankInAHelloPushesNobodyOut) {
  RawPeer usurper({"usurper", 0, {}}, credentials("usurper"));
  Handshake handshake;
  handshake.change = [](sinew::proto::Hello& hello) { hello.mutable_worker()->set_rank(0); };
  ASSERT_TRUE(usurper.connect(victim(), handshake).ok());
  do_harm(usurper);
  // It is served no method, whatever rank it says that it has.
  usurper.call("testapp::count",
               [](sinew::proto::Call& call) { call.add_arguments()->set_integer(7); });
  EXPECT_TRUE(usurper.wait_receipts());
  expect_heard_nothing(usurper);
  EXPECT_EQ(worker(1).peer(0).info(), worker(0).info());
  EXPECT_TRUE(worker(1).peer(1).call<&testapp::executions>().empty());
  EXPECT_EQ(worker(1).peer(0).call<&testapp::add>(1, 2), 3);
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
}

TEST_P(Who, ALinkIsResumedByWhoMadeIt) {
  RawPeer real({"guest", -1, {}}, credentials("guest"));
  ASSERT_TRUE(real.connect(victim()).ok());
  // The same certificate, and all that is not secret.
  RawPeer thief(real.claims(), credentials("guest"));
  expect_refused(thief);
  EXPECT_TRUE(real.control_call("sinew.worker.heard").ok());
  real.disconnect();
  expect_refused(thief);
  ASSERT_TRUE(real.connect(victim()).ok());
  EXPECT_TRUE(real.control_call("sinew.worker.heard").ok());
  // Hellos that were taken once are not taken a second time.
  Handshake old;
  old.change = [](sinew::proto::Hello& hello) { hello.set_attempt(1); };
  EXPECT_FALSE(real.connect(victim(), old).ok());
  EXPECT_EQ(real.refused_as(), sinew::proto::DUPLICATE);
  EXPECT_TRUE(real.control_call("sinew.worker.heard").ok());
  EXPECT_FALSE(real.is_down());
}

TEST_P(Who, ALinkThatIsNotKnownIsLost) {
  RawPeer late({"late", -1, {}}, credentials("late"));
  Handshake resuming;
  resuming.change = [&late](sinew::proto::Hello& hello) {
    hello.set_last_up_opener(late.claims().incarnation.value);
    hello.set_last_up_attempt(1);
  };
  EXPECT_FALSE(late.connect(victim(), resuming).ok());
  EXPECT_EQ(late.refused_as(), sinew::proto::LOST_HERE);
}

// While a member's connection is broken, and it cannot come back at once.
TEST_P(Who, TheGapBetweenTwoConnectionsOfAMember) {
  const auto all = [](const std::string&) { return true; };
  const auto out = plan_->fail_connects(all, absl::UnavailableError("no way out"));
  const auto in = plan_->refuse_connects(all, absl::UnavailableError("no way in"));
  EXPECT_GT(plan_->break_connections(all), 0u);
  const auto waiting = worker(0).peer(1).async<&testapp::count>(7);
  RawPeer thief(worker(0).info(), credentials("stranger"));
  expect_refused(thief);
  EXPECT_FALSE(waiting.done());
  plan_->remove(out);
  plan_->remove(in);
  EXPECT_EQ(waiting.wait(), 1);
}

}  // namespace
