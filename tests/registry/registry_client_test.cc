#include "sinew/rpc/membership/registry/registry_client.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace sinew::internal::registry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Incarnation kRegistrar{1000};
constexpr Incarnation kOther{2000};

class RegistryClientTest : public ::testing::Test {
 protected:
  static ClientOptions options() {
    ClientOptions options;
    options.self = {{"w1", 1, {1}}, "here"};
    options.job = "job";
    options.address = "host:1";
    return options;
  }
  static Record member(std::uint64_t who) {
    return {{"w" + std::to_string(who), static_cast<std::int32_t>(who), {who}}, ""};
  }
  static List list(std::vector<std::uint64_t> who, std::uint64_t count = 1,
                   Incarnation registrar = kRegistrar, bool is_returning = false) {
    List list{{1, registrar, count}, {0, 1, 1}, {}, is_returning};
    for (const std::uint64_t each : who) list.members.push_back(member(each));
    return list;
  }
  void take(ClientEffects effects) { all.insert(all.end(), effects.begin(), effects.end()); }
  void hear(Answer answer, Incarnation from = kRegistrar) {
    take(client.handle(from, 1, answer, now));
  }
  void pass(Time how_long) {
    for (const Time end = now + how_long; now < end;) {
      now += milliseconds(250);
      take(client.tick(now));
    }
  }
  void be_member() {
    take(client.connected(kRegistrar, now));
    hear(list({1, 2, 3}));
    ASSERT_EQ(client.state(), MembershipState::kMember);
    all.clear();
  }
  template <class Kind>
  const Kind* asked() const {
    const Kind* found = nullptr;
    for (const auto& effect : all) {
      const Ask* ask = std::get_if<Ask>(&effect);
      if (ask != nullptr && std::holds_alternative<Kind>(ask->request))
        found = &std::get<Kind>(ask->request);
    }
    return found;
  }
  template <class Kind>
  const Kind* told() const {
    const Kind* found = nullptr;
    for (const auto& effect : all) {
      if (const Kind* kind = std::get_if<Kind>(&effect)) found = kind;
    }
    return found;
  }

  Time now{0};
  RegistryClient client{options(), Time(0)};
  ClientEffects all;
};

TEST_F(RegistryClientTest, BelievesTheOneThatItHasAskedAndNobodyElse) {
  hear(list({1, 2}));
  EXPECT_EQ(client.state(), MembershipState::kJoining);
  take(client.connected(kRegistrar, now));
  EXPECT_NE(asked<Join>(), nullptr);
  hear(list({1, 2}), kOther);
  hear(list({1, 2}, 1, kOther));
  hear(list({2, 3}));
  EXPECT_EQ(client.state(), MembershipState::kJoining);
  hear(list({1, 2}));
  EXPECT_EQ(client.state(), MembershipState::kMember);
  hear(Out{Gone::kSilent, "lies"}, kOther);
  hear(list({1}, 9), kOther);
  EXPECT_EQ(client.state(), MembershipState::kMember);
  EXPECT_EQ(client.members().size(), 2U);
}

TEST_F(RegistryClientTest, SaysWhyItCouldNotJoin) {
  pass(seconds(61));
  EXPECT_EQ(told<StateNews>()->why.message(), "could not join job 'job': no answer at host:1");
}

TEST_F(RegistryClientTest, ListsDoNotGoBack) {
  be_member();
  hear(list({1, 2}, 5));
  hear(list({1, 2, 3}, 4));
  EXPECT_EQ(client.members().size(), 2U);
  hear(Update{3,
              {1, kRegistrar, 6},
              {{member(9), std::nullopt, ""},
               {member(8), std::nullopt, ""},
               {member(7), std::nullopt, ""}}});
  EXPECT_EQ(client.members().size(), 3U);
  EXPECT_EQ(client.members().count({7}), 1U);
  // What it has missed it asks for.
  all.clear();
  hear(Update{8, {1, kRegistrar, 9}, {{member(6), std::nullopt, ""}}});
  EXPECT_EQ(client.version().count, 6U);
  EXPECT_NE(asked<Renew>(), nullptr);
}

TEST_F(RegistryClientTest, GoesOnWithoutTheRegistrarAndComesBack) {
  be_member();
  take(client.gather("k", {"w1", "w2"}, "v", seconds(60), now));
  take(client.disconnected(now));
  EXPECT_EQ(client.state(), MembershipState::kSuspected);
  EXPECT_NE(told<Ended>()->status.message().find("the registrar at host:1 does not answer"),
            std::string::npos);
  EXPECT_EQ(client.members().size(), 3U);
  all.clear();
  take(client.connected(kOther, now));
  const Return* back = asked<Return>();
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->known.size(), 2U);
  EXPECT_EQ(back->version.registrar, kRegistrar);
  hear(list({1, 3}, 1, kOther, true), kOther);
  EXPECT_EQ(client.state(), MembershipState::kMember);
  EXPECT_TRUE(client.is_awaited({2}));
  EXPECT_EQ(told<MemberNews>(), nullptr);
  hear(Update{1, {1, kOther, 2}, {Change{}}}, kOther);
  ASSERT_NE(told<MemberNews>(), nullptr);
  EXPECT_EQ(told<MemberNews>()->gone, Gone::kNotReturned);
}

TEST_F(RegistryClientTest, SilenceIsNoticed) {
  be_member();
  pass(seconds(6));
  EXPECT_EQ(client.state(), MembershipState::kSuspected);
  hear(Renewed{{1, kRegistrar, 1}});
  EXPECT_EQ(client.state(), MembershipState::kMember);
}

TEST_F(RegistryClientTest, AStoppedWorkerSuspectsNobody) {
  be_member();
  now += seconds(100);
  take(client.tick(now));
  EXPECT_EQ(client.state(), MembershipState::kMember);
}

TEST_F(RegistryClientTest, NeverTakesBackWhomItHasLost) {
  be_member();
  take(client.lost({2}, "the link has ended", now));
  EXPECT_NE(asked<Report>(), nullptr);
  take(client.connected(kOther, now));
  all.clear();
  hear(list({1, 2, 3}, 1, kOther), kOther);
  ASSERT_NE(asked<Report>(), nullptr);
  EXPECT_EQ(asked<Report>()->about, Incarnation{2});
  EXPECT_TRUE(client.has_lost({2}));
}

TEST_F(RegistryClientTest, LeavesWithinSecondsWhoeverAnswers) {
  be_member();
  take(client.disconnected(now));
  take(client.leave(now));
  pass(milliseconds(2500));
  EXPECT_EQ(client.state(), MembershipState::kLeft);
  EXPECT_NE(told<StateNews>()->why.message().find("the others were not told"), std::string::npos);
}

TEST_F(RegistryClientTest, IsEvictedByTheRegistrarForGood) {
  be_member();
  take(client.gather("k", {"w1", "w2"}, "v", seconds(60), now));
  hear(Out{Gone::kSilent, "the registrar has not heard it"});
  EXPECT_EQ(client.state(), MembershipState::kEvicted);
  EXPECT_TRUE(absl::IsAborted(told<Ended>()->status));
  hear(list({1, 2, 3}, 9));
  EXPECT_EQ(client.state(), MembershipState::kEvicted);
}

TEST_F(RegistryClientTest, AGatherEndsWithNames) {
  be_member();
  take(client.gather("k", {"w1", "w2"}, "v", milliseconds(1500), now));
  // It asks in time for that, however rarely it beats.
  for (int i = 0; i < 16; ++i) {
    pass(milliseconds(250));
    hear(Renewed{{1, kRegistrar, 1}});
    if (asked<Enter>() != nullptr && told<Ended>() == nullptr) hear(Missing{1, "'w2'"});
    if (told<Ended>() == nullptr) all.clear();
  }
  ASSERT_NE(told<Ended>(), nullptr);
  EXPECT_EQ(told<Ended>()->status.message(), "'w2' had not come after 1.5s");
  EXPECT_NE(asked<Cancel>(), nullptr);
}

TEST_F(RegistryClientTest, AGatherOfAllThatOutlastsTheRegistrarNamesWhoWasMissing) {
  be_member();
  take(client.gather("end", {}, "v", seconds(3), now));
  hear(Missing{1, "'w2'"});
  take(client.disconnected(now));
  EXPECT_EQ(told<Ended>(), nullptr);
  pass(seconds(4));
  ASSERT_NE(told<Ended>(), nullptr);
  EXPECT_EQ(told<Ended>()->status.message(),
            "'w2' had not come after 3s, when the registrar at host:1 was heard last");
}

}  // namespace
}  // namespace sinew::internal::registry
