#include "sinew/tests/registry/support/table_fixture.h"

namespace sinew::internal::registry {
namespace {

using std::chrono::seconds;

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

}  // namespace
}  // namespace sinew::internal::registry
