#include "sinew/rpc/membership/etcd/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sinew::internal::etcd {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

Wanted wanted(std::int32_t rank = -1, std::int32_t world_size = 0) {
  Wanted wanted;
  wanted.self.worker = {"a", rank, Incarnation{10}};
  wanted.job = "job";
  wanted.world_size = world_size;
  wanted.instance = {1, 2, 3};
  return wanted;
}

class PlacesTest : public ::testing::Test {
 protected:
  PlacesTest() {
    seen_.set_succeeded(true);
    for (int i = 0; i < 8; ++i) seen_.add_responses()->mutable_response_range();
  }
  KeyValue& add(int response, const std::string& key, const std::string& value = {},
                std::int64_t revision = 1, std::int64_t lease = 0) {
    KeyValue& kv = *seen_.mutable_responses(response)->mutable_response_range()->add_kvs();
    kv.set_key(key);
    kv.set_value(value);
    kv.set_create_revision(revision);
    kv.set_mod_revision(revision);
    kv.set_lease(lease);
    return kv;
  }
  void add_job(std::int32_t world_size = 0, const std::string& job = "job") {
    add(1, layout_.job(), encode_job(job, world_size, {}), 17);
    add(2, layout_.member(Incarnation{99}));
  }
  Place place(const Wanted& wanted) { return find_place(layout_, wanted, seen_); }
  std::string failure(const Wanted& wanted) {
    const Place found = place(wanted);
    const auto* status = std::get_if<absl::Status>(&found);
    return status == nullptr ? "none" : std::string(status->message());
  }

  const Layout layout_{"/p", "job"};
  pb::TxnResponse seen_;
};

TEST_F(PlacesTest, TheFirstOneFounds) {
  const Place found = place(wanted());
  const auto* claim = std::get_if<Claim>(&found);
  ASSERT_NE(claim, nullptr);
  EXPECT_TRUE(claim->founds);
  EXPECT_EQ(claim->rank, 0);
  EXPECT_EQ(claim->job_revision, 0);
}

TEST_F(PlacesTest, WhoMayNotFoundWaits) {
  Wanted guest = wanted();
  guest.founds = false;
  EXPECT_TRUE(std::holds_alternative<NotFounded>(place(guest)));
  add(1, layout_.job(), encode_job("job", 0, {}), 17);
  EXPECT_TRUE(std::holds_alternative<NotFounded>(place(guest)));
}

TEST_F(PlacesTest, AJobWithoutMembersIsFoundedAnewAfterAWhile) {
  add(1, layout_.job(), encode_job("job", 0, {}), 17);
  const Place found = place(wanted());
  ASSERT_TRUE(std::holds_alternative<Empty>(found));
  EXPECT_EQ(std::get<Empty>(found).claim.job_revision, 17);
  EXPECT_TRUE(std::get<Empty>(found).claim.founds);
  EmptyJob empty;
  EXPECT_FALSE(empty.has_settled(17, seconds(5), seconds(2)));
  EXPECT_FALSE(empty.has_settled(18, seconds(7), seconds(2)));
  EXPECT_TRUE(empty.has_settled(18, seconds(9), seconds(2)));
  empty.forget();
  EXPECT_FALSE(empty.has_settled(18, seconds(9), seconds(2)));
}

TEST_F(PlacesTest, RanksAreGivenInTheOrderOfWaiting) {
  add_job();
  for (const std::int32_t rank : {0, 2}) add(4, layout_.rank(rank));
  add(3, layout_.waits({"b", -1, Incarnation{11}}), {}, 20);
  add(3, layout_.waits({"a", -1, Incarnation{10}}), {}, 21);
  add(3, layout_.waits({"c", -1, Incarnation{9}}), {}, 22);
  const Place found = place(wanted());
  ASSERT_TRUE(std::holds_alternative<Claim>(found));
  // 1 is for b.
  EXPECT_EQ(std::get<Claim>(found).rank, 3);
  EXPECT_FALSE(std::get<Claim>(found).founds);
  EXPECT_EQ(std::get<Claim>(found).job_revision, 17);
}

// Otherwise whoever comes back last may find that its rank is a newcomer's.
TEST_F(PlacesTest, NobodyGetsAPlaceWhileMembersMayComeBack) {
  add_job();
  EXPECT_TRUE(std::holds_alternative<Claim>(place(wanted())));
  add(6, layout_.returning());
  EXPECT_TRUE(std::holds_alternative<Returning>(place(wanted())));
}

TEST_F(PlacesTest, WhoHasTheNameOrTheRankIsWaitedFor) {
  add_job(4);
  add(7, layout_.rank(1), "00000000000000ff", 5, 77);
  Place found = place(wanted(1, 4));
  ASSERT_TRUE(std::holds_alternative<Held>(found));
  EXPECT_EQ(std::get<Held>(found).lease, 77);
  add(5, layout_.name("a"), "00000000000000fe", 5, 78);
  found = place(wanted(1, 4));
  EXPECT_EQ(std::get<Held>(found).lease, 78);
  EXPECT_THAT(std::get<Held>(found).why, HasSubstr("'a'"));
}

TEST_F(PlacesTest, AnAnswerThatWasLostIsRepeated) {
  add_job();
  add(5, layout_.name("a"), Layout::to_hex(Incarnation{10}), 5, 78);
  EXPECT_TRUE(std::holds_alternative<Placed>(place(wanted())));
}

TEST_F(PlacesTest, OtherWorldsAreRefused) {
  add_job(3);
  EXPECT_THAT(failure(wanted(0, 4)),
              HasSubstr("a world size of 3, and this worker a world size of 4"));
  EXPECT_THAT(failure(wanted()), HasSubstr("open membership"));
  EXPECT_EQ(failure(wanted(0, 3)), "none");
}

TEST_F(PlacesTest, OtherJobsKeysAreRefused) {
  seen_.Clear();
  seen_.add_responses()->mutable_response_range()->add_kvs()->set_key("/p/another/list/job");
  seen_.add_responses()->mutable_response_range();
  EXPECT_THAT(failure(wanted()), HasSubstr("keys of another job"));
  EXPECT_THAT(failure(wanted()), HasSubstr("/p/another/list/job"));
}

TEST_F(PlacesTest, KeysOfOtherProgramsAreRefused) {
  add(1, layout_.job(), "something else", 17);
  add(2, layout_.member(Incarnation{99}));
  EXPECT_THAT(failure(wanted()), HasSubstr("of another program"));
}

/// As HolderWatch::lives(), asked and answered at once.
bool lives(HolderWatch& holder, std::int64_t lease, std::int64_t seconds_left, int at_ms) {
  const Time at = std::chrono::milliseconds(at_ms);
  return holder.lives(lease, seconds_left, at, at);
}

TEST_F(PlacesTest, AHolderLivesWhoseLeaseIsRenewedTwice) {
  HolderWatch holder;
  EXPECT_FALSE(lives(holder, 7, 14, 0));
  EXPECT_FALSE(lives(holder, 7, 12, 2000));
  EXPECT_FALSE(lives(holder, 7, 14, 5000));
  EXPECT_FALSE(lives(holder, 7, 12, 7000));
  EXPECT_FALSE(lives(holder, 8, 14, 8000));
  EXPECT_FALSE(lives(holder, 8, 10, 12000));
  EXPECT_FALSE(lives(holder, 8, 14, 13000));
  EXPECT_FALSE(lives(holder, 8, 11, 16000));
  EXPECT_TRUE(lives(holder, 8, 14, 17000));
}

// It never has fewer whole seconds left than two.
TEST_F(PlacesTest, AHolderOfAShortLeaseLives) {
  HolderWatch holder;
  for (int at = 0; at < 1000; at += 250) EXPECT_FALSE(lives(holder, 7, 2, at));
  EXPECT_FALSE(lives(holder, 7, 2, 1000));
  EXPECT_FALSE(lives(holder, 7, 2, 1750));
  EXPECT_TRUE(lives(holder, 7, 2, 2000));
}

TEST_F(PlacesTest, ALeaseThatNobodyRenewsIsNoLife) {
  // What is rounded off, and the time of an answer, must not look like a renewal.
  for (int rest = 0; rest < 1000; rest += 50) {
    HolderWatch holder;
    for (int at = 0; at <= 3000 + rest; at += 90) {
      const Time asked = std::chrono::milliseconds(at);
      const int left = (3000 + rest - at) / 1000;
      EXPECT_FALSE(holder.lives(7, left, asked - std::chrono::milliseconds(40),
                                asked + std::chrono::milliseconds(40)));
    }
  }
}

TEST_F(PlacesTest, WhyAReturnFails) {
  const registry::Record self{{"a", 0, Incarnation{10}}, {}};
  pb::TxnResponse seen;
  for (int i = 0; i < 3; ++i) seen.add_responses()->mutable_response_range();
  bool lost_all = false;
  EXPECT_FALSE(why_out(self, "the job", seen, lost_all).has_value());
  EXPECT_TRUE(lost_all);
  KeyValue& job = *seen.mutable_responses(2)->mutable_response_range()->add_kvs();
  job.set_value("the job");
  EXPECT_THAT(*why_out(self, "the job", seen, lost_all), HasSubstr("another worker's"));
  EXPECT_FALSE(lost_all);
  EXPECT_THAT(*why_out(self, "earlier job", seen, lost_all), HasSubstr("founded anew"));
  seen.mutable_responses(1)->mutable_response_range()->add_kvs();
  EXPECT_FALSE(why_out(self, "the job", seen, lost_all).has_value());
  seen.mutable_responses(0)->mutable_response_range()->add_kvs()->set_value(
      encode_gone(Gone::kSilent, "why"));
  EXPECT_EQ(*why_out(self, "the job", seen, lost_all), "why");
}

TEST(WantedTest, IsChecked) {
  EXPECT_TRUE(check(wanted()).ok());
  EXPECT_FALSE(check(wanted(4, 4)).ok());
  EXPECT_FALSE(check(wanted(-1, 4)).ok());
  Wanted slashed = wanted();
  slashed.job = "a/b";
  EXPECT_FALSE(check(slashed).ok());
}

TEST(LayoutTest, GatherIdsAreOfNamesAndKey) {
  EXPECT_EQ(gather_id({"a", "b"}, "k"), gather_id({"a", "b"}, "k"));
  EXPECT_NE(gather_id({"a", "b"}, "k"), gather_id({"a"}, "k"));
  EXPECT_NE(gather_id({"a", "b"}, "k"), gather_id({"a", "b"}, "l"));
}

TEST(LayoutTest, KeysAreReadAsTheyAreWritten) {
  const Layout layout("/p", "job");
  const Incarnation id{0xabc};
  EXPECT_EQ(layout.parse(layout.job()).kind, Layout::Part::Kind::kJob);
  EXPECT_EQ(layout.parse(layout.member(id)).id, id);
  EXPECT_EQ(layout.parse(layout.gone(id)).kind, Layout::Part::Kind::kGone);
  EXPECT_EQ(layout.parse(layout.report(id, Incarnation{5})).about, Incarnation{5});
  EXPECT_EQ(layout.parse(layout.gather("g")).gather, "g");
  EXPECT_EQ(layout.parse(layout.name("g")).kind, Layout::Part::Kind::kOther);
  EXPECT_EQ(layout.parse_rank(layout.rank(12)), 12);
  EXPECT_EQ(layout.parse_rank(layout.name("12")), std::nullopt);
}

}  // namespace
}  // namespace sinew::internal::etcd
