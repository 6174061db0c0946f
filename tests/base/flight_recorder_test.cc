#include "sinew/rpc/base/flight_recorder.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

using Event = FlightRecorder::Event;

std::vector<Event> of_kind(const char* kind) {
  std::vector<Event> found;
  for (const Event& event : FlightRecorder::of_process().events()) {
    if (std::string(event.kind) == kind) found.push_back(event);
  }
  return found;
}

TEST(FlightRecorder, KeepsTheOrder) {
  FlightRecorder& recorder = FlightRecorder::of_process();
  recorder.add("first", "one", 1);
  recorder.add("second", std::string(200, 'x'), 2);
  const std::vector<Event> events = recorder.events(2);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_STREQ(events[0].kind, "first");
  EXPECT_EQ(events[0].text, "one");
  EXPECT_EQ(events[0].number, 1U);
  EXPECT_EQ(events[1].text, std::string(FlightRecorder::kTextBytes, 'x'));
  EXPECT_LE(events[0].time_ns, events[1].time_ns);
  EXPECT_EQ(events[0].thread, events[1].thread);
}

TEST(FlightRecorder, KeepsTheLatest) {
  FlightRecorder& recorder = FlightRecorder::of_process();
  recorder.add("old", "");
  for (std::uint64_t i = 0; i < FlightRecorder::kEvents; ++i) recorder.add("new", "", i);
  EXPECT_TRUE(of_kind("old").empty());
  const std::vector<Event> events = of_kind("new");
  ASSERT_EQ(events.size(), FlightRecorder::kEvents);
  EXPECT_EQ(events.front().number, 0U);
  EXPECT_EQ(events.back().number, FlightRecorder::kEvents - 1);
}

// What is read is whole, or left out: kind, text and number of an event belong together.
TEST(FlightRecorder, IsReadWhileOthersWrite) {
  FlightRecorder& recorder = FlightRecorder::of_process();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const char* const kind = i == 0 ? "zero" : i == 1 ? "one" : "two";
      const std::string text(40, static_cast<char>('0' + i));
      while (!stop) recorder.add(kind, text, static_cast<std::uint64_t>(i));
    });
  }
  for (int round = 0; round < 50; ++round) {
    for (const Event& event : recorder.events()) {
      const std::string kind = event.kind;
      if (kind != "zero" && kind != "one" && kind != "two") continue;
      const std::uint64_t expected = kind == "zero" ? 0 : kind == "one" ? 1 : 2;
      ASSERT_EQ(event.number, expected);
      ASSERT_EQ(event.text, std::string(40, static_cast<char>('0' + expected)));
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace sinew::internal
