// Rule R4 over real connections: messages about references from somebody whom they do not concern
// get an error and change nothing, be they made up, repeated or late.

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/membership.pb.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rref.pb.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/faulty_transport.h"
#include "sinew/tests/support/raw_asker.h"
#include "sinew/tests/support/raw_peer.h"
#include "sinew/tests/support/reference_messages.h"

using sinew::Credentials;
using sinew::RRef;
using sinew::Worker;
using sinew::WorkerInfo;
using sinew::internal::CarrierEnd;
using sinew::internal::FaultDirection;
using sinew::internal::FaultPlan;
using sinew::internal::FaultRule;
using sinew::internal::FaultyFrame;
using sinew::proto::LedgerMessage;
using sinew::testing::Certificates;
using sinew::testing::eventually;
using sinew::testing::ids_of;
using sinew::testing::RawAsker;
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

/// worker1 owns what worker0 and worker2 hold. worker3 is the hostile one: it says what it wants in
/// the name of its reference layer, which has nothing to say itself.
class HostilePeer : public ::testing::Test {
 protected:
  using Kind = LedgerMessage::BodyCase;
  static constexpr int kHostile = 3;

  void start(std::function<void(int rank, sinew::WorkerOptions&)> tweak = nullptr) {
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(4);
    options.transport = sinew::testing::ClusterTransport::kGrpc;
    options.methods = testapp::methods();
    options.tweak = std::move(tweak);
    sinew::testing::wrap_transports(
        options, [this](int rank, std::unique_ptr<sinew::internal::Transport> inner) {
          const auto plan = plans_.find(rank);
          if (plan == plans_.end()) return inner;
          return sinew::internal::make_faulty_transport(std::move(inner), plan->second);
        });
    listen(2, FaultDirection::kOutgoing, overheard_);
    listen(kHostile, FaultDirection::kIncoming, answers_);
    cluster_ = std::make_unique<sinew::testing::Cluster>(std::move(options));
  }
  /// The tables of all workers end up empty.
  void TearDown() override {
    if (cluster_ != nullptr) cluster_->shutdown();
  }

  const Worker& worker(int rank) const { return cluster_->worker(rank); }
  const Worker& owner() const { return worker(1); }
  const WorkerInfo& hostile() const { return worker(kHostile).info(); }
  std::int64_t at_owner(const std::string& counter) const { return owner().counters()[counter]; }

  /// The first message of this kind that worker2 sent, waiting for it.
  LedgerMessage overheard(Kind kind) {
    LedgerMessage found;
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto message =
          std::find_if(overheard_.messages.begin(), overheard_.messages.end(),
                       [kind](const LedgerMessage& each) { return each.body_case() == kind; });
      if (message == overheard_.messages.end()) return false;
      found = *message;
      return true;
    }));
    return found;
  }
  /// Sends the message to the owner as the hostile member. False if it was never handled there.
  bool deliver(LedgerMessage message) {
    sinew::proto::LedgerNote note;
    *note.add_messages() = std::move(message);
    const auto handled = std::make_shared<std::atomic<bool>>(false);
    sinew::WorkerAccess::core(worker(kHostile))
        ->send_note(owner().info(), "rref", note.SerializeAsString(),
                    [handled](CarrierEnd how) { *handled = how == CarrierEnd::kAnswered; });
    return eventually([&] { return handled->load(); });
  }
  /// Delivers the message; the answer must refuse a child with this code and text.
  void expect_refusal(const LedgerMessage& message, absl::StatusCode code,
                      const std::string& text) {
    EXPECT_TRUE(deliver(message));
    LedgerMessage answer;
    ASSERT_TRUE(eventually([&] {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (answers_.messages.size() <= answers_seen_) return false;
      answer = answers_.messages[answers_seen_++];
      return true;
    }));
    ASSERT_TRUE(answer.has_fork_refused()) << answer.ShortDebugString();
    EXPECT_EQ(answer.fork_refused().code(), static_cast<int>(code)) << answer.ShortDebugString();
    EXPECT_THAT(answer.fork_refused().reason(), HasSubstr(text));
  }

  // Workers read their files for each connection that they open, also while they shut down.
  const Certificates certificates_;

 private:
  /// What passed by a worker.
  struct Heard {
    std::vector<LedgerMessage> messages;
  };

  void listen(int rank, FaultDirection direction, Heard& heard) {
    FaultRule listens;
    listens.matches = [this, direction, &heard](const FaultyFrame& frame) {
      if (frame.direction == direction) record(frame, heard);
      return false;
    };
    plans_.emplace(rank, std::make_shared<FaultPlan>(/*seed=*/1)).first->second->add(listens);
  }
  void record(const FaultyFrame& frame, Heard& heard) {
    const auto note = sinew::testing::ledger_note_in(frame.lane, frame.frame.envelope);
    const std::lock_guard<std::mutex> lock(mutex_);
    heard.messages.insert(heard.messages.end(), note.messages().begin(), note.messages().end());
  }

  std::map<int, std::shared_ptr<FaultPlan>> plans_;
  std::unique_ptr<sinew::testing::Cluster> cluster_;
  std::size_t answers_seen_ = 0;
  std::mutex mutex_;
  // Of worker2, and for the hostile member.
  Heard overheard_;
  Heard answers_;
};

TEST_F(HostilePeer, MessagesAboutForksOfOthersAreRefused) {
  start();
  auto counter = worker(0).peer(1).remote<Counter>(1);
  counter.created().wait();
  worker(0).peer(2).call<&testapp::keep>("it", counter);
  ASSERT_EQ(at_owner("rref.forks"), 2);
  // Even with the secret parts, which nobody else can know.
  const sinew::proto::Reference stolen = ids_of(counter);
  EXPECT_THAT(log_of([&] { EXPECT_TRUE(deliver(delete_of(stolen))); }),
              HasSubstr("by worker 'worker3' refused: it does not hold that fork"));
  EXPECT_THAT(log_of([&] { EXPECT_TRUE(deliver(claim_of(stolen))); }),
              HasSubstr("by worker 'worker3' refused: it does not hold that fork"));

  LedgerMessage child;
  *child.mutable_add_fork()->mutable_rref() = stolen.rref();
  *child.mutable_add_fork()->mutable_parent() = stolen.fork();
  child.mutable_add_fork()->mutable_parent()->clear_secret();
  child.mutable_add_fork()->mutable_child()->set_creator(hostile().incarnation.value);
  child.mutable_add_fork()->mutable_child()->set_serial(1);
  child.mutable_add_fork()->mutable_child()->set_secret(1);
  child.mutable_add_fork()->set_token(std::string(16, 't'));
  expect_refusal(child, absl::StatusCode::kPermissionDenied,
                 "its id was not drawn by the parent's holder");
  child.mutable_add_fork()->mutable_child()->set_creator(stolen.fork().creator());
  child.mutable_add_fork()->mutable_child()->set_serial(std::uint64_t{1} << 40);
  expect_refusal(child, absl::StatusCode::kPermissionDenied, "the token does not vouch for it");
  // A message of worker2, as it was: its token is for worker2.
  expect_refusal(overheard(Kind::kAddFork), absl::StatusCode::kPermissionDenied,
                 "it does not hold that fork");
  EXPECT_EQ(at_owner("rref.forks"), 2);
  EXPECT_EQ(counter.call<&Counter::add>(1), 2);
  EXPECT_EQ(worker(0).peer(2).call<&testapp::add_to_kept>("it", 1), 3);
  worker(0).peer(2).call<&testapp::drop>("it");
}

TEST_F(HostilePeer, LateMessagesBringNothingBack) {
  start();
  auto counter = worker(0).peer(1).remote<Counter>(1);
  counter.created().wait();
  const sinew::proto::Reference stolen = ids_of(counter);
  worker(0).peer(2).call<&testapp::keep>("it", counter);
  worker(0).peer(2).call<&testapp::drop>("it");
  ASSERT_TRUE(eventually([&] { return at_owner("rref.forks") == 1; }));
  // What worker2 said while it held its fork.
  expect_refusal(overheard(Kind::kAddFork), absl::StatusCode::kFailedPrecondition,
                 "it has been deleted");
  EXPECT_TRUE(deliver(overheard(Kind::kDeleteFork)));
  EXPECT_EQ(at_owner("rref.forks"), 1);
  EXPECT_EQ(counter.call<&Counter::get>(), 1);

  counter = RRef<Counter>();
  ASSERT_TRUE(eventually([&] { return at_owner("rref.owned") == 0; }));
  expect_refusal(overheard(Kind::kAddFork), absl::StatusCode::kNotFound,
                 "the parent is not listed here");
  // What has been deleted stays deleted, whoever says so or claims it.
  EXPECT_TRUE(deliver(claim_of(stolen)));
  EXPECT_TRUE(deliver(delete_of(stolen)));
  EXPECT_EQ(at_owner("rref.owned"), 0);
  EXPECT_EQ(at_owner("rref.forks"), 0);
}

/// Says in the name of a guest that a fork is deleted. Nothing of it must be heard, or answered.
void tell_in_vain(RawPeer& guest, const LedgerMessage& message) {
  sinew::proto::LedgerNote note;
  *note.add_messages() = message;
  for (int i = 0; i < 3; ++i) guest.send_note("rref", note.SerializeAsString());
  // Control work is done in order, so the notes have been looked at when this is answered.
  EXPECT_TRUE(guest.control_call("sinew.worker.heard").ok());
  for (const sinew::proto::Envelope& envelope : guest.heard()) {
    EXPECT_FALSE(envelope.has_note()) << envelope.ShortDebugString();
  }
}

TEST_F(HostilePeer, WhoHasNotJoinedIsNotHeard) {
  start();
  const auto counter = worker(0).peer(1).remote<Counter>(1);
  counter.created().wait();
  RawPeer guest({"guest", -1, {}});
  ASSERT_TRUE(guest.connect(owner().address()).ok());
  EXPECT_EQ(log_of([&] { tell_in_vain(guest, delete_of(ids_of(counter))); }), "");
  // Its calls are held until it is a member, which it does not become.
  const std::uint64_t id = guest.call(
      "testapp::count", [](sinew::proto::Call& call) { call.add_arguments()->set_integer(7); });
  EXPECT_TRUE(guest.wait_receipts());
  EXPECT_TRUE(worker(0).peer(1).call<&testapp::executions>().empty());
  for (const sinew::proto::Envelope& envelope : guest.heard()) {
    EXPECT_NE(envelope.reply().id(), id);
  }
  EXPECT_EQ(at_owner("rref.forks"), 1);
  EXPECT_EQ(counter.call<&Counter::get>(), 1);
}

TEST_F(HostilePeer, NobodyCanSpeakInTheNameOfAWorker) {
  start([this](int, sinew::WorkerOptions& options) {
    options.credentials = Credentials::mutual_tls(certificates_.issue(options.name));
  });
  const auto counter = worker(0).peer(1).remote<Counter>(1);
  counter.created().wait();
  const Credentials own = Credentials::mutual_tls(certificates_.issue("stranger"));
  RawPeer impostor({"worker0", 0, {}}, own);
  const absl::Status refused = impostor.connect(owner().address());
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("but its certificate is for"));

  // Under a name that its certificate covers it may come, and is heard as little as anybody else.
  RawPeer guest({"stranger", 7, {}}, own);
  ASSERT_TRUE(guest.connect(owner().address()).ok());
  EXPECT_EQ(log_of([&] { tell_in_vain(guest, delete_of(ids_of(counter))); }), "");
  EXPECT_EQ(at_owner("rref.forks"), 1);
  EXPECT_EQ(counter.call<&Counter::get>(), 1);
}

TEST_F(HostilePeer, ASecondIncarnationOfALiveWorkerIsNoMember) {
  start();
  const auto counter = worker(0).peer(1).remote<Counter>(1);
  counter.created().wait();
  RawPeer second({"worker0", 0, {}});
  ASSERT_TRUE(second.connect(owner().address()).ok());
  tell_in_vain(second, delete_of(ids_of(counter)));
  RawAsker asker(second.claims(), second.key());
  ASSERT_TRUE(asker.open(worker(0).address()).ok());
  asker.say(asker.join_as(0, 4));
  const auto refused = asker.wait<sinew::internal::registry::Refused>();
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->why.code(), absl::StatusCode::kAlreadyExists) << refused->why;
  EXPECT_THAT(std::string(refused->why.message()), HasSubstr("name 'worker0' is already used"));
  EXPECT_EQ(at_owner("rref.forks"), 1);
  EXPECT_EQ(worker(2).peer(0).call<&testapp::add>(1, 2), 3);
  EXPECT_EQ(counter.call<&Counter::get>(), 1);
}

}  // namespace
