// What a worker is told of the others.

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/open_job_test.h"

using sinew::ErrorCode;
using sinew::MemberEvent;
using sinew::MemberWatch;
using sinew::Worker;
using sinew::WorkerInfo;
using sinew::WorkerOptions;
using sinew::testing::error_of;
using sinew::testing::eventual_value;
using sinew::testing::eventually;
using sinew::testing::last_of;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::ResultOf;
using namespace std::chrono_literals;

namespace {

/// What one worker is told. Thread-safe.
class Diary {
 public:
  explicit Diary(const Worker& worker) {
    watch_ = worker.on_member([this](const MemberEvent& event) {
      const std::lock_guard<std::mutex> lock(mutex_);
      events_.push_back(event);
    });
  }
  std::vector<MemberEvent> events() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return events_;
  }
  /// "joined:worker1"
  static std::string text_of(const MemberEvent& event) {
    std::ostringstream text;
    text << event.kind << ":" << event.worker.name;
    return text.str();
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> texts;
    for (const MemberEvent& event : events()) texts.push_back(text_of(event));
    return texts;
  }
  bool wait_for(std::size_t count) const {
    return eventually([&] { return events().size() >= count; });
  }
  /// The latest of them, once it is this one.
  MemberEvent wait_for(const std::string& text) const {
    const auto is_latest = Optional(ResultOf(&text_of, text));
    const auto latest = eventual_value([&] { return last_of(events()); }, is_latest);
    EXPECT_THAT(latest, is_latest);
    return latest.value_or(MemberEvent());
  }

 private:
  mutable std::mutex mutex_;
  std::vector<MemberEvent> events_;
  MemberWatch watch_;
};

class MemberEvents : public sinew::testing::OpenJobTest {
 protected:
  void start_open(int size) {
    OpenJobTest::start_open(size, testapp::methods());
    for (int rank = 0; rank < size; ++rank) {
      const auto knows_all = [&] {
        return worker(rank).workers().size() == static_cast<std::size_t>(size);
      };
      ASSERT_TRUE(eventually(knows_all));
    }
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(MemberEvents);

TEST_P(MemberEvents, OthersJoinAndLeave) {
  start_open(2);
  const Diary first(worker(0));
  const Diary second(worker(1));
  const Worker late = start_late();
  EXPECT_EQ(late.peer("worker0").call<&testapp::add>(1, 2), 3);
  EXPECT_EQ(worker(1).peer("late").call<&testapp::add>(1, 2), 3);
  late.shutdown();
  const Worker again = start_late();
  for (const Diary* diary : {&first, &second}) {
    EXPECT_TRUE(diary->wait_for(3));
    ASSERT_THAT(diary->texts(), ElementsAre("joined:late", "left:late", "joined:late"));
    const std::vector<MemberEvent> events = diary->events();
    EXPECT_EQ(events[0].worker, late.info());
    EXPECT_EQ(events[1].worker, late.info());
    EXPECT_EQ(events[2].worker, again.info());
  }
  again.shutdown();
  EXPECT_TRUE(first.wait_for(4));
  EXPECT_TRUE(second.wait_for(4));
}

TEST_P(MemberEvents, WhoEndsWithoutAGoodbyeIsLost) {
  start_open(2);
  const Diary diary(worker(0));
  const Worker late = start_late();
  EXPECT_EQ(worker(0).peer("late").call<&testapp::add>(1, 2), 3);
  late.shutdown({false});
  const MemberEvent lost = diary.wait_for("lost:late");
  EXPECT_THAT(lost.reason, HasSubstr("'late'"));
  // As the link says, or the list.
  EXPECT_THAT(lost.why, AnyOf(sinew::Gone::kLinkEndedThere, sinew::Gone::kProcessEnded));
  EXPECT_EQ(diary.texts().at(0), "joined:late");
}

// What follows may be seen at once: it is gone from the list, and calls to it have ended.
TEST_P(MemberEvents, TheWorkerIsAsNewAsTheEvent) {
  start_open(2);
  const Worker self = worker(0);
  const sinew::Promise<void> over(nullptr);
  sinew::Future<int> running;
  const auto is_member = [self](const WorkerInfo& which) {
    const auto members = self.workers();
    return std::find(members.begin(), members.end(), which) != members.end();
  };
  const MemberWatch watch = self.on_member([&](const MemberEvent& event) {
    if (event.kind == MemberEvent::Kind::kJoined) {
      EXPECT_TRUE(is_member(event.worker));
      // It may block.
      EXPECT_EQ(self.peer(event.worker).call<&testapp::add>(1, 2), 3);
      running = self.peer(event.worker).async<&testapp::stall>();
    } else if (event.kind == MemberEvent::Kind::kLost) {
      EXPECT_FALSE(is_member(event.worker));
      EXPECT_TRUE(running.done());
      over.set_value();
    }
  });
  const Worker late = start_late();
  EXPECT_TRUE(eventually([&] { return self.peer("late").call<&testapp::stalled>() == 1; }));
  late.shutdown({false});
  EXPECT_NO_THROW(over.future().wait_for(60s));
  testapp::drop_stalled(late);
}

TEST_P(MemberEvents, AnEvictionAndWhoComesBack) {
  start(3, testapp::methods());
  const Diary first(worker(0));
  const Diary out(worker(2));
  const WorkerInfo old = worker(2).info();
  evict(2);
  const MemberEvent evicted = out.wait_for("evicted:worker2");
  EXPECT_EQ(evicted.worker, old);
  EXPECT_THAT(evicted.reason, HasSubstr("was evicted from the job"));
  EXPECT_EQ(error_of([&] { Diary none(worker(2)); }).code(), ErrorCode::kAborted);
  const std::size_t told = out.events().size();
  replace(2, worker(2).rejoin());
  EXPECT_TRUE(first.wait_for(2));
  ASSERT_THAT(first.texts(), ElementsAre("lost:worker2", "joined:worker2"));
  EXPECT_EQ(first.events()[0].worker, old);
  EXPECT_EQ(first.events()[1].worker, worker(2).info());
  EXPECT_EQ(out.events().size(), told);
}

TEST_P(MemberEvents, WhoDoesNotAnswerIsSuspected) {
  start(2, testapp::methods());
  const Diary diary(worker(0));
  const auto link = sinew::WorkerAccess::core(worker(0))->link(worker(1).info());
  ASSERT_TRUE(link.ok()) << link.status();
  (*link)->on_suspected(true);
  (*link)->on_suspected(false);
  EXPECT_TRUE(diary.wait_for(2));
  EXPECT_THAT(diary.texts(), ElementsAre("suspected:worker1", "trusted:worker1"));
}

// A function that is slower than what it is told of hears all of it, and in order.
TEST_P(MemberEvents, NoneIsLostWhileAFunctionRuns) {
  constexpr int kTimes = 4;
  start_open(2);
  sinew::testing::Gate gate;
  std::mutex mutex;
  std::vector<std::string> told;
  MemberWatch watch = worker(0).on_member([&](const MemberEvent& event) {
    gate.pass();
    const std::lock_guard<std::mutex> lock(mutex);
    std::ostringstream text;
    text << event.kind << " " << event.worker.incarnation.value;
    told.push_back(text.str());
  });
  std::vector<std::string> expected;
  for (int time = 0; time < kTimes; ++time) {
    const Worker late = start_late();
    EXPECT_EQ(worker(0).peer("late").call<&testapp::add>(1, 2), 3);
    const std::string incarnation = absl::StrCat(late.info().incarnation.value);
    expected.push_back("joined " + incarnation);
    expected.push_back("left " + incarnation);
    late.shutdown();
  }
  EXPECT_EQ(gate.arrivals(), 1) << "one call at a time";
  gate.open();
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard<std::mutex> lock(mutex);
    return told.size() >= expected.size();
  }));
  watch.end();
  EXPECT_EQ(told, expected);
}

TEST_P(MemberEvents, TheEndOfAWatchWaitsForItsFunction) {
  start_open(2);
  sinew::testing::Gate gate;
  std::atomic<bool> is_over{false};
  MemberWatch watch = worker(0).on_member([&](const MemberEvent&) {
    gate.pass();
    is_over = true;
  });
  const Worker late = start_late();
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  std::thread opens([&] { gate.open(); });
  watch.end();
  EXPECT_TRUE(is_over);
  opens.join();
  // Nothing is told any more.
  late.shutdown();
  EXPECT_TRUE(eventually([&] { return worker(0).workers().size() == 2; }));
  EXPECT_EQ(gate.arrivals(), 1);
}

// What an evicted worker is told ends with its eviction; its successor has watches of its own.
TEST_P(MemberEvents, WhoRejoinsIsToldOfWhatFollows) {
  start_open(3);
  const Diary out(worker(2));
  evict(2);
  out.wait_for("evicted:worker2");
  replace(2, worker(2).rejoin());
  const Diary back(worker(2));
  const Worker late = start_late();
  back.wait_for("joined:late");
  EXPECT_EQ(last_of(out.texts()), "evicted:worker2");
  late.shutdown();
  EXPECT_EQ(back.wait_for("left:late").why, sinew::Gone::kLeft);
}

TEST_P(MemberEvents, WrongUseIsRefused) {
  start(1, testapp::methods());
  EXPECT_EQ(error_of([&] { MemberWatch none = worker(0).on_member(nullptr); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([] { Diary none{Worker()}; }).code(), ErrorCode::kFailedPrecondition);
  MemberWatch outlives = worker(0).on_member([self = worker(0)](const MemberEvent&) {});
  worker(0).shutdown();
  EXPECT_EQ(error_of([&] { Diary none(worker(0)); }).code(), ErrorCode::kFailedPrecondition);
  MemberWatch moved = std::move(outlives);
  moved = MemberWatch();
}

}  // namespace
