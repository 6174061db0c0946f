// Mutual TLS, and somebody whose certificate is good but for a name that nobody in the job has. It
// says of itself what it likes; what it says must not touch the members.

#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/eventually.h"
#include "sinew/tests/support/raw_peer.h"

using sinew::Credentials;
using sinew::Incarnation;
using sinew::Worker;
using sinew::WorkerInfo;
using sinew::internal::Lane;
using sinew::testing::Certificates;
using sinew::testing::eventually;
using sinew::testing::RawPeer;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

namespace {

constexpr auto kAtOnce = 10s;
// How often it tries what needs to come at the right moment.
constexpr int kAttempts = 5;
constexpr std::uint64_t kLargest = std::uint64_t{1} << 60;

/// The ways in which a number may stand in a message.
std::vector<std::string> spellings_of(std::uint64_t number) {
  std::string varint;
  for (std::uint64_t rest = number; rest != 0; rest >>= 7) {
    varint.push_back(static_cast<char>((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0)));
  }
  std::string fixed(sizeof number, '\0');
  std::memcpy(fixed.data(), &number, sizeof number);
  return {varint, fixed, absl::StrCat(number), absl::StrCat(absl::Hex(number))};
}

/// Three members; worker1 is the one that the stranger talks to.
class Stranger : public ::testing::Test {
 protected:
  void SetUp() override {
    sinew::testing::ClusterOptions options;
    options.size = 3;
    options.transport = sinew::testing::ClusterTransport::kGrpc;
    options.methods = testapp::methods();
    options.tweak = [this](int, sinew::WorkerOptions& worker) {
      worker.credentials = Credentials::mutual_tls(certificates_.issue(worker.name));
    };
    cluster_ = std::make_unique<sinew::testing::Cluster>(std::move(options));
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(worker(rank).rpc_sync<&testapp::add>(1, 1, 2), 3);
    }
  }
  void TearDown() override {
    // What has failed already would only wait for what hangs.
    if (cluster_ == nullptr || HasFailure()) return;
    testapp::release_at(worker(1));
    for (const std::string& failure : cluster_->shutdown({true, 60s, true})) {
      ADD_FAILURE() << failure;
    }
  }

  const Worker& worker(int rank) const { return cluster_->worker(rank); }

  /// The stranger under its own name, with this rank and incarnation, connected to worker1. Null
  /// when it was refused, which is always right.
  std::unique_ptr<RawPeer> connect(std::int32_t rank, Incarnation incarnation) const {
    auto peer = std::make_unique<RawPeer>(WorkerInfo{"stranger", rank, incarnation}, credentials_);
    return peer->connect(worker(1).address()).ok() ? std::move(peer) : nullptr;
  }
  static sinew::proto::Envelope call_of(std::uint64_t id, const std::string& method) {
    sinew::proto::Envelope envelope;
    envelope.mutable_call()->set_id(id);
    envelope.mutable_call()->set_method(method);
    envelope.mutable_call()->add_arguments()->set_binary("");
    return envelope;
  }
  static void expect_within(const sinew::Future<int>& call, int value) {
    try {
      EXPECT_EQ(call.wait_for(kAtOnce), value);
    } catch (const sinew::RpcError& error) {
      ADD_FAILURE() << error.what();
    }
  }
  void expect_members_are_who_they_were() const {
    for (const Worker& each : {worker(0), worker(1), worker(2)}) {
      std::vector<std::string> names;
      for (const WorkerInfo& member : each.workers()) names.push_back(member.name);
      EXPECT_THAT(names, ::testing::ElementsAre("worker0", "worker1", "worker2")) << each.name();
    }
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(worker(1).peer(rank).name(), absl::StrCat("worker", rank));
    }
  }

  const Certificates certificates_;
  const Credentials credentials_ = Credentials::mutual_tls(certificates_.issue("stranger"));
  std::unique_ptr<sinew::testing::Cluster> cluster_;
};

class StrangerOfRank : public Stranger, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Of, StrangerOfRank, ::testing::Values(-1, 0, 7),
                         [](const ::testing::TestParamInfo<int>& rank) {
                           return rank.param < 0 ? std::string("None") : absl::StrCat(rank.param);
                         });

TEST_P(StrangerOfRank, LearnsNoIncarnationFromTheList) {
  const auto peer = connect(GetParam(), {4711});
  if (peer == nullptr) return;
  peer->send(call_of(1, "sinew.member.list"));
  ASSERT_TRUE(eventually([&] { return !peer->heard().empty() || peer->is_down(); }));
  for (const std::string& heard : peer->heard()) {
    for (int rank = 0; rank < 3; ++rank) {
      for (const std::string& spelling : spellings_of(worker(rank).info().incarnation.value)) {
        EXPECT_FALSE(absl::StrContains(heard, spelling))
            << "it was told the incarnation of worker" << rank;
      }
    }
  }
}

TEST_P(StrangerOfRank, PushesNobodyOut) {
  const auto peer = connect(GetParam(), {4711});
  expect_members_are_who_they_were();
  for (int rank = 0; rank < 3; ++rank) {
    expect_within(worker(1).rpc_async<&testapp::add>(rank, 1, 2), 3);
    expect_within(worker(rank).rpc_async<&testapp::add>(1, 1, 2), 3);
  }
}

TEST_P(StrangerOfRank, GetsNoRepliesOfTheMemberWhoseIncarnationItNames) {
  // Replies are kept while an earlier call runs.
  const auto earlier = worker(0).rpc_async<&testapp::stall>(1);
  const std::string secret = "what worker0 alone may read";
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(worker(0).rpc_sync<&testapp::echo>(1, secret), secret);
  }
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto peer = connect(GetParam(), worker(0).info().incarnation);
    if (peer == nullptr) continue;
    constexpr std::uint64_t kIds = 40;
    for (std::uint64_t id = 1; id <= kIds; ++id) {
      peer->send(call_of(id, "testapp::add"), Lane::kCalls);
    }
    EXPECT_TRUE(eventually([&] { return peer->heard().size() >= kIds || peer->is_down(); }));
    for (const std::string& heard : peer->heard()) ASSERT_THAT(heard, Not(HasSubstr(secret)));
  }
  // Nor does it spoil what worker0 asks from now on.
  for (int i = 0; i < 60; ++i) {
    expect_within(worker(0).rpc_async<&testapp::add>(1, i, 1), i + 1);
    if (HasFailure()) break;
  }
  testapp::release_at(worker(1));
  expect_within(earlier, 1);
}

TEST_P(StrangerOfRank, EndsNoCallsOfTheMemberWhoseIncarnationItNames) {
  const auto call = worker(0).rpc_async<&testapp::stall>(1);
  ASSERT_TRUE(eventually([&] { return worker(2).rpc_sync<&testapp::stalled>(1) == 1; }));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto peer = connect(GetParam(), worker(0).info().incarnation);
    if (peer == nullptr) continue;
    for (std::uint64_t id = 1; id <= 10; ++id) {
      sinew::proto::Envelope cancel;
      cancel.mutable_cancel()->set_id(id);
      peer->send(cancel, Lane::kCalls);
    }
    sinew::proto::Envelope beat;
    beat.mutable_beat()->set_sequence(1);
    beat.set_completed_below(kLargest);
    peer->send(beat);
    // Read in order; worker1 answers this one, or has closed the connection.
    peer->send(call_of(kLargest, "sinew.member.list"));
    EXPECT_TRUE(eventually([&] { return !peer->heard().empty() || peer->is_down(); }));
  }
  testapp::release_at(worker(1));
  expect_within(call, 1);
  expect_within(worker(0).rpc_async<&testapp::add>(1, 1, 2), 3);
  expect_members_are_who_they_were();
}

}  // namespace
