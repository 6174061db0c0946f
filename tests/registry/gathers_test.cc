#include "sinew/tests/registry/support/table_fixture.h"

namespace sinew::internal::registry {
namespace {

using std::chrono::seconds;
using Verb = KeyRequest::Verb;

class GathersTest : public TableTest {
 protected:
  void SetUp() override {
    // Nobody can come back any more.
    pass(kLease);
    for (std::uint64_t who = 1; who <= 3; ++who) join(who);
  }
  Effects enter(std::uint64_t who, std::vector<std::string> names, std::uint64_t id = 1,
                std::string key = "k") {
    return ask(who, Enter{id, std::move(key), std::move(names), "v" + std::to_string(who)});
  }
  const std::vector<std::string> both_{"w1", "w2"};
};

TEST_F(GathersTest, IsCompleteWhenAllHaveCome) {
  enter(1, both_);
  EXPECT_EQ(sent<Missing>(enter(1, both_), 1)->names, "'w2'");
  const Effects effects = enter(2, both_, 8);
  EXPECT_EQ(sent<Finished>(effects, 1)->values, (std::vector<std::string>{"v1", "v2"}));
  EXPECT_EQ(sent<Finished>(effects, 2)->id, 8U);
}

TEST_F(GathersTest, CompleteStaysCompleteForWhoStillAsks) {
  enter(1, both_);
  enter(2, both_);
  ask(2, Leave{});
  EXPECT_TRUE(sent<Finished>(enter(1, both_), 1)->status.ok());
  ask(1, Cancel{1});
  EXPECT_EQ(table.gathers().size(), 0U);
}

TEST_F(GathersTest, FailsWithTheNameOfWhoIsGone) {
  enter(1, both_);
  const Effects effects = ask(2, Leave{});
  EXPECT_NE(sent<Finished>(effects, 1)->status.message().find("'w2'"), std::string::npos);
  EXPECT_FALSE(sent<Finished>(enter(1, both_, 2), 1)->status.ok());
}

TEST_F(GathersTest, WhoHasComeHasComeWhateverBecomesOfIt) {
  enter(1, both_);
  ask(1, Leave{});
  EXPECT_TRUE(sent<Finished>(enter(2, both_), 2)->status.ok());
}

TEST_F(GathersTest, WhoGivesUpHasNotCome) {
  enter(1, both_);
  ask(1, Cancel{1});
  EXPECT_EQ(sent<Finished>(enter(2, both_), 2), nullptr);
  // Also by not asking any more.
  pass(kLease + seconds(1), {1, 2, 3});
  EXPECT_EQ(table.gathers().size(), 0U);
}

TEST_F(GathersTest, OfAllIsCompleteWithThoseWhoAreLeft) {
  enter(1, {});
  enter(2, {});
  const Effects effects = ask(3, Leave{});
  EXPECT_EQ(sent<Finished>(effects, 1)->values.size(), 2U);
}

TEST_F(GathersTest, OfAllWaitsForWhoIsBackUnderItsName) {
  enter(1, {});
  ask(1, Leave{true});
  ASSERT_NE(sent<List>(join(4, -1, "w1"), 4), nullptr);
  enter(2, {});
  EXPECT_EQ(sent<Finished>(enter(3, {}), 2), nullptr);
  EXPECT_EQ(sent<Finished>(enter(4, {}), 2)->values.size(), 3U);
}

TEST_F(GathersTest, ImproperOnesAreRefused) {
  const auto fails = [&](const Effects& effects) {
    const Finished* end = sent<Finished>(effects, 1);
    return end != nullptr && !end->status.ok();
  };
  EXPECT_TRUE(fails(enter(1, {"w2", "w3"})));
  EXPECT_TRUE(fails(enter(1, {"w2", "w1"})));
  EXPECT_TRUE(fails(enter(1, {"w1", "w1"})));
  EXPECT_TRUE(fails(enter(1, {"w1", "w9"})));
  EXPECT_TRUE(fails(enter(1, both_, 1, std::string(2000, 'k'))));
  EXPECT_FALSE(fails(enter(1, both_, 1)));
  // One id twice would count once.
  EXPECT_TRUE(fails(enter(1, both_, 1, "other")));
}

TEST_F(GathersTest, OneMemberHasSoManyAndNoMore) {
  Options few = options();
  few.limits.gathers_each = 2;
  begin(few);
  pass(kLease);
  join(1);
  join(2);
  for (std::uint64_t id = 1; id <= 2; ++id) enter(1, both_, id, std::to_string(id));
  EXPECT_EQ(sent<Finished>(enter(1, both_, 3, "3"), 1)->status.code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(table.gathers().size(), 2U);
  ask(1, Cancel{1});
  EXPECT_EQ(sent<Finished>(enter(1, both_, 3, "3"), 1), nullptr);
}

class KeysTest : public GathersTest {
 protected:
  Finished key(std::uint64_t who, Verb verb, std::string name, std::string value = "",
               bool is_kept = false, std::optional<std::string> expected = std::nullopt) {
    const Effects effects = ask(
        who, KeyRequest{verb, 5, std::move(name), std::move(value), std::move(expected), is_kept});
    const Finished* end = sent<Finished>(effects, who);
    return end == nullptr ? Finished{0, absl::UnknownError("waits"), {}} : *end;
  }
};

TEST_F(KeysTest, GoWithTheirOwners) {
  EXPECT_TRUE(key(1, Verb::kPut, "a", "x").status.ok());
  EXPECT_TRUE(key(1, Verb::kPut, "b", "x", true).status.ok());
  EXPECT_EQ(key(2, Verb::kGet, "a").values, std::vector<std::string>{"x"});
  ask(1, Leave{});
  EXPECT_TRUE(absl::IsNotFound(key(2, Verb::kGet, "a").status));
  EXPECT_TRUE(key(2, Verb::kGet, "b").status.ok());
}

TEST_F(KeysTest, AreTheirOwnersAlone) {
  key(1, Verb::kPut, "a", "x");
  EXPECT_TRUE(absl::IsPermissionDenied(key(2, Verb::kPut, "a", "y").status));
  EXPECT_TRUE(absl::IsPermissionDenied(key(2, Verb::kRemove, "a").status));
  EXPECT_TRUE(absl::IsPermissionDenied(key(2, Verb::kCompare, "a", "y", false, "x").status));
  key(1, Verb::kPut, "b", "x", true);
  EXPECT_TRUE(key(2, Verb::kRemove, "b").status.ok());
}

TEST_F(KeysTest, AreWaitedFor) {
  EXPECT_EQ(key(2, Verb::kWait, "a").status.message(), "waits");
  EXPECT_EQ(
      sent<Finished>(ask(1, KeyRequest{Verb::kPut, 9, "a", "x", std::nullopt, false}), 2)->values,
      std::vector<std::string>{"x"});
  // Nobody is told twice, nor after it gave up.
  EXPECT_EQ(sent<Finished>(ask(1, KeyRequest{Verb::kPut, 9, "a", "y", std::nullopt, false}), 2),
            nullptr);
  key(2, Verb::kWait, "b");
  ask(2, Cancel{5});
  EXPECT_EQ(sent<Finished>(ask(1, KeyRequest{Verb::kPut, 9, "b", "x", std::nullopt, false}), 2),
            nullptr);
}

TEST_F(KeysTest, AreCompared) {
  EXPECT_TRUE(key(1, Verb::kCompare, "a", "1", true).status.ok());
  const Finished other = key(2, Verb::kCompare, "a", "2", true);
  EXPECT_TRUE(absl::IsAborted(other.status));
  EXPECT_EQ(other.values, std::vector<std::string>{"1"});
  EXPECT_TRUE(key(2, Verb::kCompare, "a", "2", true, "1").status.ok());
}

TEST_F(KeysTest, HaveBounds) {
  Options few = options();
  few.limits.keys_each = 2;
  few.limits.bytes_each = 10;
  few.limits.waits_each = 1;
  begin(few);
  pass(kLease);
  join(1);
  EXPECT_TRUE(key(1, Verb::kPut, "a", "12345").status.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(key(1, Verb::kPut, "b", "123456").status));
  EXPECT_TRUE(key(1, Verb::kPut, "b", "1").status.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(key(1, Verb::kPut, "c", "1").status));
  EXPECT_TRUE(key(1, Verb::kRemove, "b").status.ok());
  EXPECT_TRUE(key(1, Verb::kPut, "c", "1").status.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(key(1, Verb::kGet, std::string(2000, 'k')).status));
}

TEST_F(KeysTest, NobodyButMembersHasAny) {
  EXPECT_NE(sent<Out>(ask(77, KeyRequest{Verb::kPut, 1, "a", "x", std::nullopt, true}), 77),
            nullptr);
  EXPECT_EQ(table.keys().size(), 0U);
}

}  // namespace
}  // namespace sinew::internal::registry
