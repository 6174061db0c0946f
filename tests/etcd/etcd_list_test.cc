#include "sinew/rpc/membership/etcd/etcd_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace sinew::internal::etcd {
namespace {

using registry::Record;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr seconds kLease{15};

Record worker(const std::string& name, std::int32_t rank, std::uint64_t incarnation) {
  return {{name, rank, Incarnation{incarnation}}, {}};
}

std::string shown(const ListEffects& effects) {
  std::string text;
  for (const auto& effect : effects) {
    if (const auto* news = std::get_if<MemberNews>(&effect)) {
      absl::StrAppend(&text, news->gone.has_value() ? "-" : "+", news->member.worker.name, " ");
    } else if (const auto* gone = std::get_if<SayGone>(&effect)) {
      absl::StrAppend(&text, "say:", gone->member.worker.name, " ");
    } else if (const auto* self = std::get_if<SelfGone>(&effect)) {
      absl::StrAppend(&text, self->is_out ? "out " : "back ");
    } else {
      absl::StrAppend(&text, "gather:", std::get<GatherNews>(effect).id, " ");
    }
  }
  return text;
}

class EtcdListTest : public ::testing::Test {
 protected:
  EtcdListTest() : list_(layout_, {Incarnation{1}, kLease, seconds(1)}, Time(0)) {
    KeyValue job;
    job.set_key(layout_.job());
    job.set_value("the job");
    EXPECT_EQ(shown(list_.reset({job, member(a_), member(b_), member(c_)}, Time(0))), "+b +c ");
  }

  KeyValue member(const Record& record) const {
    KeyValue kv;
    kv.set_key(layout_.member(record.worker.incarnation));
    kv.set_value(encode_member(record));
    return kv;
  }
  KeyValue gone(const Record& record, Gone why) const {
    KeyValue kv;
    kv.set_key(layout_.gone(record.worker.incarnation));
    kv.set_value(encode_gone(why, "a reason"));
    return kv;
  }
  KeyValue report(const Record& from, const Record& about) const {
    KeyValue kv;
    kv.set_key(layout_.report(from.worker.incarnation, about.worker.incarnation));
    return kv;
  }
  static Event put(KeyValue kv) {
    Event event;
    *event.mutable_kv() = std::move(kv);
    return event;
  }
  static Event erased(KeyValue kv) {
    Event event = put(std::move(kv));
    event.set_type(Event::DELETE);
    event.mutable_kv()->clear_value();
    return event;
  }
  std::string apply(const std::vector<Event>& events, Time now) {
    return shown(list_.apply(events, now));
  }

  const Layout layout_{"/p", "job"};
  const Record a_ = worker("a", 0, 1);
  const Record b_ = worker("b", 1, 2);
  const Record c_ = worker("c", 2, 3);
  EtcdList list_;
};

TEST_F(EtcdListTest, WhoseLeaseEndsIsLostAndThatIsWritten) {
  EXPECT_EQ(apply({erased(member(b_))}, seconds(1)), "-b say:b ");
  EXPECT_EQ(list_.find("b"), nullptr);
  // It is never taken back.
  EXPECT_EQ(apply({put(member(b_))}, seconds(2)), "say:b ");
  EXPECT_EQ(list_.find("b"), nullptr);
}

TEST_F(EtcdListTest, WhoLeavesHasLeft) {
  const auto effects = list_.apply({erased(member(b_)), put(gone(b_, Gone::kLeft))}, seconds(1));
  EXPECT_EQ(shown(effects), "-b ");
  EXPECT_EQ(std::get<MemberNews>(effects[0]).gone, Gone::kLeft);
  EXPECT_EQ(std::get<MemberNews>(effects[0]).reason, "a reason");
}

TEST_F(EtcdListTest, AfterEtcdWasAwayKeysMayComeBack) {
  EXPECT_FALSE(list_.is_away(seconds(10)));
  EXPECT_TRUE(list_.is_away(seconds(40)));
  EXPECT_EQ(apply({erased(member(a_)), erased(member(b_)), erased(member(c_))}, seconds(40)),
            "back ");
  EXPECT_EQ(shown(list_.tick(seconds(41))), "");
  list_.renewed(seconds(41), seconds(42));
  EXPECT_EQ(apply({put(member(a_)), put(member(b_))}, seconds(43)), "");
  list_.renewed(seconds(50), seconds(50));
  EXPECT_EQ(shown(list_.tick(seconds(56))), "");
  // c has not come within a lease.
  EXPECT_EQ(shown(list_.tick(seconds(57))), "-c say:c ");
  EXPECT_THAT(list_.members(), ::testing::SizeIs(2));
}

TEST_F(EtcdListTest, WhatIsHeardLateOfThatTimeCountsForNothing) {
  // The lease is renewed before the watch tells what was meanwhile.
  list_.renewed(seconds(40), seconds(40));
  EXPECT_EQ(apply({erased(member(b_))}, seconds(41)), "");
  EXPECT_EQ(apply({put(member(b_))}, seconds(42)), "");
  list_.renewed(seconds(50), seconds(50));
  EXPECT_EQ(apply({erased(member(b_))}, seconds(56)), "-b say:b ");
}

TEST_F(EtcdListTest, OwnKeyGoneWhileEtcdAnswersIsTheEnd) {
  EXPECT_EQ(apply({erased(member(a_))}, seconds(5)), "out ");
}

TEST_F(EtcdListTest, WhoIsSaidToBeGoneLearnsIt) {
  EXPECT_EQ(apply({put(gone(a_, Gone::kSilent))}, seconds(40)), "out ");
  EXPECT_EQ(apply({put(gone(c_, Gone::kProcessEnded))}, seconds(40)), "-c ");
  // Its key may be there for a while.
  EXPECT_EQ(apply({put(member(c_))}, seconds(40)), "say:c ");
}

TEST_F(EtcdListTest, AListIsTakenAnew) {
  const Record d = worker("d", 3, 4);
  EXPECT_EQ(shown(list_.reset({member(a_), member(c_), member(d)}, seconds(1))), "+d -b say:b ");
  EXPECT_EQ(shown(list_.reset({member(a_), member(c_), gone(d, Gone::kLeft)}, seconds(2))), "-d ");
  EXPECT_EQ(shown(list_.reset({member(c_)}, seconds(3))), "out ");
}

TEST_F(EtcdListTest, OneEndsReportIsNotEnough) {
  apply({put(report(b_, a_))}, seconds(1));
  EXPECT_EQ(shown(list_.tick(seconds(9))), "");
}

TEST_F(EtcdListTest, OfTwoThatHaveLostEachOtherTheHigherRankGoes) {
  apply({put(report(b_, a_)), put(report(a_, b_))}, seconds(1));
  EXPECT_EQ(shown(list_.tick(milliseconds(1900))), "");
  const auto effects = list_.tick(seconds(2));
  EXPECT_EQ(shown(effects), "say:b ");
  EXPECT_EQ(std::get<SayGone>(effects[0]).stays, a_.worker.incarnation);
  EXPECT_EQ(std::get<SayGone>(effects[0]).why, Gone::kLostEachOther);
  // Repeated, but not each time.
  EXPECT_EQ(shown(list_.tick(milliseconds(2100))), "");
  EXPECT_EQ(shown(list_.tick(seconds(5))), "say:b ");
}

TEST_F(EtcdListTest, WhoHasLostMoreGoes) {
  apply({put(report(a_, b_)), put(report(b_, a_)), put(report(a_, c_)), put(report(c_, a_))},
        seconds(1));
  const auto effects = list_.tick(seconds(3));
  EXPECT_EQ(shown(effects), "say:a ");
}

TEST_F(EtcdListTest, TheirsIsForThoseTwoAlone) {
  apply({put(report(c_, b_)), put(report(b_, c_))}, seconds(1));
  EXPECT_EQ(shown(list_.tick(seconds(3))), "");
}

TEST_F(EtcdListTest, WhatIsNotOursIsLeftAlone) {
  KeyValue kv;
  for (const std::string key :
       {"members/1", "members/000000000000000g", "gone/", "reports/0000000000000001",
        "reports/0000000000000001/x", "other"}) {
    kv.set_key(layout_.list() + key);
    kv.set_value("\xff");
    EXPECT_EQ(apply({put(kv)}, seconds(1)), "") << key;
    EXPECT_EQ(apply({erased(kv)}, seconds(1)), "") << key;
  }
  // One that speaks for another.
  kv = member(worker("x", 7, 70));
  kv.set_key(layout_.member(Incarnation{71}));
  EXPECT_EQ(apply({put(kv)}, seconds(1)), "");
  kv = member(worker("not a name", 7, 70));
  EXPECT_EQ(apply({put(kv)}, seconds(1)), "");
}

TEST_F(EtcdListTest, GathersEndInTheOrderOfTheLosses) {
  KeyValue end;
  end.set_key(layout_.gather("g"));
  EXPECT_EQ(apply({put(end), erased(member(b_))}, seconds(1)), "gather:g -b say:b ");
}

}  // namespace
}  // namespace sinew::internal::etcd
