// Rule R4 over real connections: messages about references from somebody whom they do not concern
// get an error and change nothing, be they made up, repeated or late.

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rref.pb.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/eventually.h"
#include "sinew/tests/support/faulty_transport.h"
#include "sinew/tests/support/raw_peer.h"
#include "sinew/tests/support/reference_messages.h"

using sinew::Credentials;
using sinew::RRef;
using sinew::Worker;
using sinew::WorkerInfo;
using sinew::internal::FaultDirection;
using sinew::internal::FaultPlan;
using sinew::internal::FaultRule;
using sinew::internal::FaultyFrame;
using sinew::proto::LedgerMessage;
using sinew::testing::Certificates;
using sinew::testing::eventually;
using sinew::testing::ids_of;
using sinew::testing::RawPeer;
using testapp::Counter;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

namespace {

/// A claim or deletion of a fork.
LedgerMessage claim_of(const sinew::proto::Reference& ids) {
  LedgerMessage message;
  *message.mutable_claim()->mutable_rref() = ids.rref();
  *message.mutable_claim()->mutable_fork() = ids.fork();
  return message;
}
LedgerMessage delete_of(const sinew::proto::Reference& ids) {
  LedgerMessage message;
  *message.mutable_delete_fork()->mutable_rref() = ids.rref();
  *message.mutable_delete_fork()->mutable_fork() = ids.fork();
  return message;
}

/// Runs `action`; what workers logged meanwhile.
template <class Action>
std::string log_of(const Action& action) {
  ::testing::internal::CaptureStderr();
  action();
  return ::testing::internal::GetCapturedStderr();
}

/// worker1 owns what worker0 and worker2 hold. All that worker2 sends about references is seen.
class HostilePeer : public ::testing::Test {
 protected:
  using Kind = LedgerMessage::BodyCase;

  void start(std::function<void(int rank, sinew::WorkerOptions&)> tweak = nullptr) {
    sinew::testing::ClusterOptions options;
    options.size = 3;
    options.transport = sinew::testing::ClusterTransport::kGrpc;
    options.methods = testapp::methods();
    options.tweak = std::move(tweak);
    options.wrap_transport = [this](int rank, std::unique_ptr<sinew::internal::Transport> inner) {
      if (rank != 2) return inner;
      return sinew::internal::make_faulty_transport(std::move(inner), plan_);
    };
    FaultRule listens;
    listens.matches = [this](const FaultyFrame& frame) {
      if (frame.direction == FaultDirection::kOutgoing) record(frame);
      return false;
    };
    plan_->add(std::move(listens));
    cluster_ = std::make_unique<sinew::testing::Cluster>(std::move(options));
  }
  /// The tables of all workers end up empty.
  void TearDown() override {
    if (cluster_ == nullptr) return;
    const std::vector<std::string> failures = cluster_->shutdown({true, 60s, true});
    EXPECT_TRUE(failures.empty()) << absl::StrJoin(failures, "\n");
  }

  const Worker& worker(int rank) const { return cluster_->worker(rank); }
  const Worker& owner() const { return worker(1); }
  std::int64_t at_owner(const std::string& counter) const { return owner().counters()[counter]; }

  /// The first message of this kind that worker2 sent, waiting for it.
  LedgerMessage overheard(Kind kind) {
    LedgerMessage found;
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto message = overheard_.find(kind);
      if (message == overheard_.end()) return false;
      found = message->second;
      return true;
    }));
    return found;
  }
  /// Delivers the message as the stranger; the answer must refuse a child with this code and text.
  void expect_refusal(RawPeer& stranger, const LedgerMessage& message, absl::StatusCode code,
                      const std::string& text) {
    EXPECT_TRUE(stranger.deliver(message));
    const auto answer = stranger.receive();
    ASSERT_TRUE(answer.has_value());
    ASSERT_TRUE(answer->has_fork_refused()) << answer->ShortDebugString();
    EXPECT_EQ(answer->fork_refused().code(), static_cast<int>(code)) << answer->ShortDebugString();
    EXPECT_THAT(answer->fork_refused().reason(), HasSubstr(text));
  }

  static WorkerInfo stranger() { return {"stranger", 7, {4711}}; }

  // Workers read their files for each connection that they open, also while they shut down.
  const Certificates certificates_;

 private:
  void record(const FaultyFrame& frame) {
    const auto note = sinew::testing::ledger_note_in(frame.lane, frame.frame.envelope);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const LedgerMessage& message : note.messages()) {
      overheard_.emplace(message.body_case(), message);
    }
  }

  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>(/*seed=*/1);
  std::unique_ptr<sinew::testing::Cluster> cluster_;
  std::mutex mutex_;
  std::map<Kind, LedgerMessage> overheard_;
};

TEST_F(HostilePeer, MessagesAboutForksOfOthersAreRefused) {
  start();
  auto counter = sinew::remote<Counter>(worker(0).peer(1), 1);
  counter.created().wait();
  worker(0).rpc_sync<&testapp::keep>(2, "it", counter);
  ASSERT_EQ(at_owner("rref.forks"), 2);
  {
    RawPeer peer(stranger());
    ASSERT_TRUE(peer.connect(owner().address()).ok());
    // Even with the secret parts, which nobody else can know.
    const sinew::proto::Reference stolen = ids_of(counter);
    EXPECT_THAT(log_of([&] { EXPECT_TRUE(peer.deliver(delete_of(stolen))); }),
                HasSubstr("by worker 'stranger' refused: it does not hold that fork"));
    EXPECT_THAT(log_of([&] { EXPECT_TRUE(peer.deliver(claim_of(stolen))); }),
                HasSubstr("by worker 'stranger' refused: it does not hold that fork"));

    LedgerMessage child;
    *child.mutable_add_fork()->mutable_rref() = stolen.rref();
    *child.mutable_add_fork()->mutable_parent() = stolen.fork();
    child.mutable_add_fork()->mutable_parent()->clear_secret();
    child.mutable_add_fork()->mutable_child()->set_creator(stranger().incarnation.value);
    child.mutable_add_fork()->mutable_child()->set_serial(1);
    child.mutable_add_fork()->mutable_child()->set_secret(1);
    child.mutable_add_fork()->set_token(std::string(16, 't'));
    expect_refusal(peer, child, absl::StatusCode::kPermissionDenied,
                   "its id was not drawn by the parent's holder");
    child.mutable_add_fork()->mutable_child()->set_creator(stolen.fork().creator());
    child.mutable_add_fork()->mutable_child()->set_serial(std::uint64_t{1} << 40);
    expect_refusal(peer, child, absl::StatusCode::kPermissionDenied,
                   "the token does not vouch for it");
    // A message of worker2, as it was: its token is for worker2.
    expect_refusal(peer, overheard(Kind::kAddFork), absl::StatusCode::kPermissionDenied,
                   "it does not hold that fork");
  }
  EXPECT_EQ(at_owner("rref.forks"), 2);
  EXPECT_EQ(sinew::rpc_sync<&Counter::add>(counter, 1), 2);
  EXPECT_EQ(worker(0).rpc_sync<&testapp::add_to_kept>(2, "it", 1), 3);
  worker(0).rpc_sync<&testapp::drop>(2, "it");
}

TEST_F(HostilePeer, LateMessagesBringNothingBack) {
  start();
  auto counter = sinew::remote<Counter>(worker(0).peer(1), 1);
  counter.created().wait();
  const sinew::proto::Reference stolen = ids_of(counter);
  worker(0).rpc_sync<&testapp::keep>(2, "it", counter);
  worker(0).rpc_sync<&testapp::drop>(2, "it");
  ASSERT_TRUE(eventually([&] { return at_owner("rref.forks") == 1; }));
  RawPeer peer(stranger());
  ASSERT_TRUE(peer.connect(owner().address()).ok());
  // What worker2 said while it held its fork.
  expect_refusal(peer, overheard(Kind::kAddFork), absl::StatusCode::kFailedPrecondition,
                 "it has been deleted");
  EXPECT_TRUE(peer.deliver(overheard(Kind::kDeleteFork)));
  EXPECT_EQ(at_owner("rref.forks"), 1);
  EXPECT_EQ(sinew::rpc_sync<&Counter::get>(counter), 1);

  counter = RRef<Counter>();
  ASSERT_TRUE(eventually([&] { return at_owner("rref.owned") == 0; }));
  expect_refusal(peer, overheard(Kind::kAddFork), absl::StatusCode::kNotFound,
                 "the parent is not listed here");
  // What has been deleted stays deleted, whoever says so or claims it.
  EXPECT_TRUE(peer.deliver(claim_of(stolen)));
  EXPECT_TRUE(peer.deliver(delete_of(stolen)));
  EXPECT_EQ(at_owner("rref.owned"), 0);
  EXPECT_EQ(at_owner("rref.forks"), 0);
}

TEST_F(HostilePeer, WhoHasNotJoinedIsNotHeard) {
  start();
  const auto counter = sinew::remote<Counter>(worker(0).peer(1), 1);
  counter.created().wait();
  RawPeer guest({"guest", -1, {4712}});
  ASSERT_TRUE(guest.connect(owner().address()).ok());
  sinew::proto::LedgerNote note;
  *note.add_messages() = delete_of(ids_of(counter));
  note.mutable_messages(0)->set_sequence(1);
  sinew::proto::Envelope envelope;
  envelope.mutable_note()->set_layer("rref");
  envelope.mutable_note()->set_body(note.SerializeAsString());
  guest.send(envelope);
  // Frames of a lane are read in order, and this one ends the connection.
  envelope.mutable_reply();
  guest.send(envelope);
  EXPECT_TRUE(guest.wait_down());
  EXPECT_EQ(at_owner("rref.forks"), 1);
  EXPECT_EQ(sinew::rpc_sync<&Counter::get>(counter), 1);
}

TEST_F(HostilePeer, NobodyCanSpeakInTheNameOfAWorker) {
  start([this](int, sinew::WorkerOptions& options) {
    options.credentials = Credentials::mutual_tls(certificates_.issue(options.name));
  });
  const auto counter = sinew::remote<Counter>(worker(0).peer(1), 1);
  counter.created().wait();
  const Credentials own = Credentials::mutual_tls(certificates_.issue("stranger"));
  RawPeer impostor(worker(0).info(), own);
  const absl::Status refused = impostor.connect(owner().address());
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("but its certificate is for"));

  // Under a name that its certificate covers it is heard, and may as little as anybody else.
  RawPeer peer(stranger(), own);
  ASSERT_TRUE(peer.connect(owner().address()).ok());
  EXPECT_THAT(log_of([&] { EXPECT_TRUE(peer.deliver(delete_of(ids_of(counter)))); }),
              HasSubstr("refused: it does not hold that fork"));
  EXPECT_EQ(at_owner("rref.forks"), 1);
  EXPECT_EQ(sinew::rpc_sync<&Counter::get>(counter), 1);
}

TEST_F(HostilePeer, ASecondIncarnationOfALiveWorkerIsRefused) {
  start();
  RawPeer impostor({"worker0", 0, {4713}});
  const absl::Status refused = impostor.connect(owner().address());
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("knows another live incarnation of worker 'worker0'"));
}

}  // namespace
