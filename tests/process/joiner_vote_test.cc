// A worker of a fixed world that is being let in has a say before it is on a list of its own: who
// stands, or proposes a list with it, is heard although it knows nobody. Strangers change nothing
// by that. The other members are made by hand.

#include <csignal>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/membership.pb.h"
#include "sinew/rpc/membership/ballot.h"
#include "sinew/rpc/membership/control_plane.h"
#include "sinew/rpc/membership/member_codec.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/support/eventual_value.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/raw_peer.h"

using sinew::WorkerInfo;
using sinew::internal::kLastTerm;
using sinew::internal::kProposeMethod;
using sinew::internal::kUpdateMethod;
using sinew::internal::kVoteMethod;
using sinew::internal::Member;
using sinew::testing::Certificates;
using sinew::testing::ChildProcess;
using sinew::testing::eventually;
using sinew::testing::RawPeer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace {

using Child = std::unique_ptr<ChildProcess>;

constexpr std::uint64_t kTerm = 7;

/// Rank 0 waits for a world of three, rank 2 for rank 0.
class JoinerVote : public ::testing::Test {
 protected:
  /// Its answer to that is yet to be received.
  Child begin(const std::string& name, int rank, const std::string& more = "") const {
    auto child = std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
    child->send(absl::StrCat("start name=", name, " rank=", rank,
                             " world=3 join_ms=60000 init=", meet_, tls_ ? tls(name) : "", more));
    return child;
  }
  Child begin_joiner() const { return begin("joiner", 2, absl::StrCat(" bind=", joiner_)); }
  /// Once the joiner answers at its address.
  void meet(RawPeer& peer) {
    EXPECT_TRUE(eventually([&] {
      const auto answer = peer.ask(joiner_);
      if (answer.ok()) joiner_info_ = *answer;
      return answer.ok();
    }));
    joiner_info_.rank = 2;
    const absl::Status connected = peer.connect(joiner_);
    EXPECT_TRUE(connected.ok()) << connected;
  }
  std::string tls(const std::string& name) const {
    const sinew::TlsFiles files = certificates_->issue(name);
    return absl::StrCat(" tls=mutual ca=", files.ca, " cert=", files.certificate,
                        " key=", files.key);
  }

  /// What the joiner says to whom stands; nullopt: it is no member.
  static std::optional<sinew::proto::VoteResponse> stand(RawPeer& peer, std::uint64_t term) {
    sinew::proto::VoteRequest request;
    request.set_term(term);
    const auto answer = peer.control_call(std::string(kVoteMethod), request.SerializeAsString());
    sinew::proto::VoteResponse vote;
    if (answer.ok() && vote.ParseFromString(*answer)) return vote;
    EXPECT_THAT(std::string(answer.status().message()), HasSubstr("is no member; ask again"));
    return std::nullopt;
  }
  static bool is_granted(RawPeer& peer, std::uint64_t term) {
    const auto vote = stand(peer, term);
    return vote.has_value() && vote->granted();
  }
  /// A list with the peer and the joiner.
  std::string list_of(const RawPeer& peer, std::uint64_t version) const {
    sinew::internal::MemberView list;
    list.version = version;
    list.world_size = 3;
    list.members = {Member{peer.claims(), peer.address()}, Member{joiner_info_, joiner_}};
    sinew::proto::MemberList message;
    sinew::internal::encode(list, message);
    return message.SerializeAsString();
  }

  std::optional<Certificates> certificates_;
  bool tls_ = false;
  const std::string meet_ = absl::StrCat("tcp://127.0.0.1:", sinew::testing::free_port());
  const std::string joiner_ = absl::StrCat("127.0.0.1:", sinew::testing::free_port());
  WorkerInfo joiner_info_;
};

// Rank 0 has let it in, told rank 1 alone, and died: rank 1 needs its vote.
TEST_F(JoinerVote, IsGivenToWhomItDoesNotKnowWhenWhomItHasAskedIsGone) {
  const Child leader = begin("leader", 0);
  const Child joiner = begin_joiner();
  RawPeer next({"next", 1, {4711}});
  meet(next);
  // As long as the leader answers.
  EXPECT_TRUE(eventually([&] { return stand(next, kTerm).has_value(); }));
  EXPECT_FALSE(is_granted(next, kTerm));
  leader->signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return is_granted(next, kTerm); }));

  const std::string list = list_of(next, kTerm << 32);
  const auto accepted = next.control_call(std::string(kProposeMethod), list);
  EXPECT_TRUE(accepted.ok()) << accepted.status();
  // So it is in force.
  const auto told = next.control_call(std::string(kUpdateMethod), list);
  EXPECT_TRUE(told.ok()) << told.status();
  EXPECT_THAT(joiner->receive(), StartsWith("ok "));
}

/// Somebody who reaches the joiner, and is no member: without credentials, or with valid ones.
class StrangerAtJoiner : public JoinerVote, public ::testing::WithParamInterface<bool> {};

TEST_P(StrangerAtJoiner, ChangesNothing) {
  tls_ = GetParam();
  if (tls_) certificates_.emplace();
  const Child leader = begin("leader", 0);
  const Child joiner = begin_joiner();
  RawPeer stranger({"stranger", 1, {4711}},
                   tls_ ? sinew::Credentials::mutual_tls(certificates_->issue("stranger"))
                        : sinew::Credentials::insecure());
  meet(stranger);
  EXPECT_TRUE(eventually([&] { return stand(stranger, kLastTerm).has_value(); }));
  for (const std::uint64_t term : {kTerm, kLastTerm, std::numeric_limits<std::uint64_t>::max()}) {
    const auto vote = stand(stranger, term);
    ASSERT_TRUE(vote.has_value());
    EXPECT_FALSE(vote->granted());
    EXPECT_FALSE(vote->has_list());
    EXPECT_FALSE(vote->has_accepted());
    const auto answer = stranger.control_call(std::string(kProposeMethod),
                                              list_of(stranger, (term << 32) | 0xffffffff));
    EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  }
  for (const std::string_view method : {kVoteMethod, kProposeMethod}) {
    const auto answer = stranger.control_call(std::string(method), "\xff\xff");
    EXPECT_TRUE(absl::IsInvalidArgument(answer.status())) << answer.status();
  }
  // It believes a list of the first term, and decides with the others.
  const Child last = begin("last", 1);
  EXPECT_THAT(leader->receive(), StartsWith("ok "));
  EXPECT_THAT(last->receive(), StartsWith("ok "));
  EXPECT_THAT(joiner->receive(), StartsWith("ok "));
  EXPECT_EQ(joiner->ask("members"), "ok leader last joiner");

  // A member is no other.
  const auto vote = stand(stranger, kLastTerm);
  ASSERT_TRUE(vote.has_value());
  EXPECT_FALSE(vote->granted());
  EXPECT_FALSE(vote->has_list());
  const auto proposed = stranger.control_call(std::string(kProposeMethod),
                                              list_of(stranger, (kLastTerm << 32) | 0xffffffff));
  EXPECT_TRUE(absl::IsPermissionDenied(proposed.status())) << proposed.status();
  // The others agree on lists without the leader all the same.
  leader->send("shutdown hard 1000");
  EXPECT_EQ(leader->receive(), "ok ");
  for (ChildProcess* const child : {last.get(), joiner.get()}) {
    EXPECT_EVENTUALLY(child->ask("members"), "ok last joiner");
  }
}

INSTANTIATE_TEST_SUITE_P(With, StrangerAtJoiner, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "MutualTls" : "Insecure"; });

}  // namespace
