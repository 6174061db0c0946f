// What sinew-ctl finds in what the workers of a job say.

#include "sinew/launch/ctl/stuck.h"

#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/launch/ctl/columns.h"
#include "sinew/launch/ctl/tables.h"

namespace sinew::internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Kind = Finding::Kind;

constexpr std::uint64_t kSecond = 1000000;
constexpr std::chrono::microseconds kPatience = std::chrono::seconds(1);

/// Workers "w0", "w1", ..., whose incarnations are 100, 101, ...
class Job {
 public:
  explicit Job(int size) : view_(static_cast<std::size_t>(size)) {
    for (int i = 0; i < size; ++i) {
      WorkerView& worker = at(i);
      worker.name = "w" + std::to_string(i);
      worker.rank = i;
      worker.address = "127.0.0.1:" + std::to_string(5000 + i);
      write(i, *worker.state.mutable_worker());
      worker.state.set_membership("MEMBER");
    }
  }
  WorkerView& at(int worker) { return view_[static_cast<std::size_t>(worker)]; }
  const JobView& view() const { return view_; }

  /// `caller` has called `method` at `callee`, which serves it; from within the call with the
  /// number `parent_id` of `parent_caller`.
  proto::ServedCall& call(int caller, int callee, std::uint64_t id, const std::string& method,
                          int parent_caller = -1, std::uint64_t parent_id = 0) {
    proto::MadeCall& made = *at(caller).state.add_made_calls();
    made.set_id(id);
    write(callee, *made.mutable_callee());
    made.set_method(method);
    if (parent_caller >= 0) made.set_parent_caller(100 + static_cast<std::uint64_t>(parent_caller));
    made.set_parent_id(parent_id);
    proto::ServedCall& served = *at(callee).state.add_served_calls();
    served.set_id(id);
    write(caller, *served.mutable_caller());
    served.set_method(method);
    served.set_age_us(5 * kSecond);
    served.set_state(proto::ServedCall::RUNS);
    return served;
  }
  std::vector<Finding> stuck() const { return find_stuck(view_, view_, kPatience); }

 private:
  static void write(int worker, proto::WorkerIdentity& identity) {
    identity.set_name("w" + std::to_string(worker));
    identity.set_rank(worker);
    identity.set_incarnation(100 + static_cast<std::uint64_t>(worker));
  }
  JobView view_;
};

std::string text(const Finding& finding) {
  std::string text;
  for (const std::string& line : finding.lines) text += line + "\n";
  return text;
}

std::vector<Kind> kinds(const std::vector<Finding>& found) {
  std::vector<Kind> kinds;
  for (const Finding& finding : found) kinds.push_back(finding.kind);
  return kinds;
}

TEST(Stuck, NothingIsFoundInAJobThatWorks) {
  Job job(3);
  job.call(0, 1, 7, "app::f").set_age_us(1000);
  job.call(1, 2, 8, "app::g", 0, 7).set_age_us(900);
  EXPECT_THAT(job.stuck(), IsEmpty());
}

TEST(Stuck, ACycleOfCallsOverThreeWorkersIsNamedWithEachEdge) {
  Job job(3);
  // w0 has called w1, which calls w2, which calls w0, which calls w1's first call's turn.
  proto::ServedCall& first = job.call(0, 1, 1, "app::Diary::ask");
  first.set_turn_of(77);
  job.call(1, 2, 2, "app::relay", 0, 1);
  proto::ServedCall& last = job.call(2, 1, 3, "app::Diary::note", 1, 2);
  last.set_turn_of(77);
  last.set_turns_ahead(1);
  last.set_state(proto::ServedCall::WAITS_FOR_TURN);
  const std::vector<Finding> found = job.stuck();
  ASSERT_THAT(kinds(found), ElementsAre(Kind::kCycle));
  EXPECT_THAT(
      text(found[0]),
      AllOf(StartsWith("3 calls wait for each other"), HasSubstr("app::Diary::ask at worker 'w1'"),
            HasSubstr("app::relay at worker 'w2' (of worker 'w1', number 2, 5 s old, runs)"),
            HasSubstr("app::Diary::note at worker 'w1'"), HasSubstr("waits for its turn")));
}

TEST(Stuck, TwoTurnsThatWaitForEachOtherAreOneCycle) {
  Job job(2);
  for (int i = 0; i < 2; ++i) {
    const int other = 1 - i;
    const auto id = static_cast<std::uint64_t>(10 + i);
    job.call(other, i, id, "app::Account::move").set_turn_of(5);
    proto::ServedCall& waits = job.call(i, other, id + 10, "app::Account::add", other, id);
    waits.set_turn_of(5);
    waits.set_turns_ahead(1);
    waits.set_state(proto::ServedCall::WAITS_FOR_TURN);
  }
  const std::vector<Finding> found = job.stuck();
  ASSERT_THAT(kinds(found), ElementsAre(Kind::kCycle));
  EXPECT_THAT(text(found[0]), StartsWith("4 calls wait for each other"));
}

TEST(Stuck, ACycleThatIsYoungIsNone) {
  Job job(2);
  job.call(0, 1, 1, "app::f", 1, 2).set_age_us(1000);
  job.call(1, 0, 2, "app::g", 0, 1).set_age_us(1000);
  EXPECT_THAT(job.stuck(), IsEmpty());
}

TEST(Stuck, WhatOthersWaitForIsTheRoot) {
  Job job(3);
  job.call(0, 1, 1, "app::step");
  job.call(1, 2, 2, "app::load", 0, 1);
  const std::vector<Finding> found = job.stuck();
  ASSERT_THAT(kinds(found), ElementsAre(Kind::kRoot));
  EXPECT_THAT(text(found[0]), AllOf(HasSubstr("app::load at worker 'w2'"),
                                    HasSubstr("look at what the method does"),
                                    HasSubstr("calls that wait for it: 1")));
}

TEST(Stuck, WhatNobodyElseWaitsForIsTheRootOnceItIsVeryOld) {
  Job job(2);
  proto::ServedCall& call = job.call(0, 1, 1, "app::train");
  call.set_age_us(9 * kSecond);
  EXPECT_THAT(job.stuck(), IsEmpty());
  call.set_age_us(10 * kSecond);
  ASSERT_THAT(kinds(job.stuck()), ElementsAre(Kind::kRoot));
  EXPECT_THAT(text(job.stuck()[0]), Not(HasSubstr("calls that wait for it")));
}

TEST(Stuck, ACallToOneThatSaysNothingOfItIsTold) {
  Job job(3);
  job.call(0, 1, 1, "app::step");
  job.call(1, 2, 2, "app::load", 0, 1);
  job.at(2).state.Clear();
  job.at(2).answered = absl::DeadlineExceededError("Deadline Exceeded");
  const std::vector<Finding> found = job.stuck();
  ASSERT_THAT(kinds(found), ElementsAre(Kind::kSilent, Kind::kRoot));
  EXPECT_THAT(text(found[0]), AllOf(HasSubstr("'w2'"), HasSubstr("Deadline Exceeded")));
  EXPECT_THAT(text(found[1]), HasSubstr("app::load at w2"));
}

TEST(Stuck, ABarrierNamesWhoIsMissing) {
  Job job(3);
  for (int i = 0; i < 2; ++i) {
    proto::GatherState& gather = *job.at(i).state.add_gathers();
    gather.set_key("w0 w1 w2, 4");
    for (const char* name : {"w0", "w1", "w2"}) gather.add_names(name);
    gather.set_age_us(3 * kSecond);
  }
  proto::GatherState& of_all = *job.at(2).state.add_gathers();
  of_all.set_key("the whole job, 0");
  of_all.set_age_us(2 * kSecond);
  const std::vector<Finding> found = job.stuck();
  ASSERT_THAT(kinds(found), ElementsAre(Kind::kGather, Kind::kGather));
  EXPECT_THAT(text(found[0]), HasSubstr("waits for 'w0', 'w1'"));
  EXPECT_THAT(text(found[1]),
              AllOf(HasSubstr("waits for 'w2' since 3 s"), HasSubstr("in it: 'w0', 'w1'")));
}

TEST(Stuck, ACollectiveNamesTheRanksThatHaveNotCalledIt) {
  Job job(3);
  for (int i = 0; i < 3; ++i) {
    proto::GroupState& group = *job.at(i).state.add_groups();
    group.set_name("world");
    group.set_rank(i);
    group.set_size(3);
    group.set_called(i == 2 ? 4 : 5);
    if (i == 2) continue;
    proto::GroupOperation& operation = *group.add_operations();
    operation.set_what("all_reduce(SUM) of float32 [3]");
    operation.set_number(5);
  }
  const std::vector<Finding> found = job.stuck();
  ASSERT_THAT(kinds(found), ElementsAre(Kind::kCollective));
  EXPECT_THAT(text(found[0]),
              AllOf(HasSubstr("'world'"), HasSubstr("all_reduce(SUM) of float32 [3]"),
                    HasSubstr("has not been called by 'w2 (rank 2)'")));
  // One that goes on is not stuck: it was another one a moment before.
  Job before = job;
  for (int i = 0; i < 2; ++i) {
    before.at(i).state.mutable_groups(0)->mutable_operations(0)->set_number(4);
  }
  EXPECT_THAT(find_stuck(before.view(), job.view(), kPatience), IsEmpty());
}

TEST(Stuck, QueuesWindowsAndSilenceAreTold) {
  Job job(3);
  job.call(0, 1, 1, "app::push").set_state(proto::ServedCall::QUEUED);
  (*job.at(1).state.mutable_counters())["rpc.max_threads"] = 4;
  proto::LinkState& full = *job.at(0).state.add_links();
  full.mutable_peer()->set_name("w1");
  full.set_state("up");
  full.set_calls_without_room(12);
  full.set_request_bytes(64 << 20);
  full.set_window_bytes(64 << 20);
  proto::LinkState& down = *job.at(0).state.add_links();
  down.mutable_peer()->set_name("w2");
  down.set_state("waits after a failed attempt");
  down.set_frames(3);
  down.set_why_down("connection refused");
  job.at(2).state.set_membership("SUSPECTED");
  const std::vector<Finding> found = job.stuck();
  ASSERT_THAT(kinds(found), ElementsAre(Kind::kRegistry, Kind::kQueue, Kind::kLink, Kind::kLink));
  EXPECT_THAT(text(found[0]), HasSubstr("as seen by 'w2'"));
  EXPECT_THAT(text(found[1]), AllOf(HasSubstr("1 calls wait for a thread, one for 5 s"),
                                    HasSubstr("threads for them: 4")));
  EXPECT_THAT(text(found[2]), HasSubstr("12 calls wait for room: 64 MiB of 64 MiB"));
  EXPECT_THAT(text(found[3]), AllOf(HasSubstr("3 messages wait for a connection"),
                                    HasSubstr("connection refused")));
}

// What a worker says is its own business, and may be anything.
TEST(Stuck, LiesAreNoCrash) {
  Job job(2);
  proto::ServedCall& own = job.call(0, 0, 1, "app::f\n\x1b[31m", 0, 1);
  own.set_turn_of(3);
  own.set_turns_ahead(~std::uint64_t{0});
  own.set_state(proto::ServedCall::WAITS_FOR_TURN);
  own.set_age_us(~std::uint64_t{0});
  job.call(0, 0, 1, "app::f", 0, 1);
  job.at(1).state.mutable_worker()->set_incarnation(100);
  proto::GroupState& group = *job.at(0).state.add_groups();
  group.set_rank(-5);
  group.add_operations()->set_number(~std::uint64_t{0});
  for (const Finding& finding : job.stuck()) {
    EXPECT_THAT(text(finding), Not(HasSubstr("\x1b")));
  }
  for (const Shown& shown : all_shown())
    EXPECT_THAT(shown.show(job.view()), Not(HasSubstr("\x1b")));
}

TEST(Columns, AreAsWideAsTheirWidestCell) {
  EXPECT_EQ(as_columns({{"A", "BB"}, {"long", "x"}}), "A     BB\nlong  x\n");
  EXPECT_EQ(as_columns({{"two\nlines", "\x01"}}), "two lines  \\x01\n");
}

TEST(Columns, TimesAndSizesReadWell) {
  EXPECT_EQ(time_text(999), "999 us");
  EXPECT_EQ(time_text(1500), "1.5 ms");
  EXPECT_EQ(time_text(61 * kSecond), "1 min 1 s");
  EXPECT_EQ(time_text(3601 * kSecond), "1 h 0 min");
  EXPECT_EQ(time_text(49 * 3600 * kSecond), "2 d 1 h");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text(std::uint64_t{5} << 40), "5 TiB");
}

}  // namespace
}  // namespace sinew::internal
