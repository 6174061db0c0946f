#include "sinew/rpc/base/stop_signal.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "gtest/gtest.h"
#include "sinew/rpc/base/internal/stop_rule.h"
#include "sinew/testing/eventually.h"

using sinew::StopSignal;
using sinew::testing::eventually;
using namespace std::chrono_literals;

namespace {

std::atomic<int> own_signals{0};
void on_own_signal(int) { ++own_signals; }

using Handler = void (*)(int);

Handler handler_of(int signal) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

[[noreturn]] void exit_if(bool is_well) { std::_Exit(is_well ? 0 : 1); }

/// A process is asked to end once, so each test has one of its own.
class StopSignals : public ::testing::Test {
 protected:
  StopSignals() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
const auto kWell = ::testing::ExitedWithCode(0);

TEST(StopRule, OneStopTakesTwoSeconds) {
  const std::chrono::steady_clock::time_point first;
  EXPECT_TRUE(sinew::internal::is_same_stop(first, first));
  EXPECT_TRUE(sinew::internal::is_same_stop(first, first + 2s - 1ns));
  EXPECT_FALSE(sinew::internal::is_same_stop(first, first + 2s));
}

TEST_F(StopSignals, AllAreToldOnce) {
  const auto run = [](int signal) {
    std::atomic<int> first{0};
    std::atomic<int> second{0};
    std::atomic<int> late{0};
    {
      const StopSignal one([&] { ++first; });
      const StopSignal other([&] { ++second; });
      if (StopSignal::requested()) exit_if(false);
      std::raise(signal);
      if (!StopSignal::requested()) exit_if(false);
      if (!eventually([&] { return first == 1 && second == 1; })) exit_if(false);
    }
    const StopSignal another([&] { ++late; });
    exit_if(eventually([&] { return late == 1; }) && first == 1 && second == 1);
  };
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) EXPECT_EXIT(run(signal), kWell, "");
}

TEST_F(StopSignals, WhatComesSoonIsTheFirst) {
  const auto run = [] {
    std::atomic<int> told{0};
    {
      const StopSignal one([&] { ++told; });
      for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGTERM}) std::raise(signal);
    }
    // When the program writes its results.
    std::raise(SIGTERM);
    exit_if(told == 1);
  };
  EXPECT_EXIT(run(), kWell, "");
}

TEST_F(StopSignals, ALaterOneEndsTheProcess) {
  const auto run = [] {
    const StopSignal one([] {});
    eventually([] {
      std::raise(SIGTERM);
      std::this_thread::sleep_for(50ms);
      return false;
    });
  };
  EXPECT_EXIT(run(), ::testing::KilledBySignal(SIGTERM), "");
}

TEST_F(StopSignals, WithoutOneItIsAsBefore) {
  std::atomic<int> told{0};
  {
    const StopSignal one([&] { ++told; });
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) EXPECT_NE(handler_of(signal), SIG_DFL);
  }
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) EXPECT_EQ(handler_of(signal), SIG_DFL);
  EXPECT_EQ(told, 0);
  EXPECT_FALSE(StopSignal::requested());
}

TEST_F(StopSignals, TheProgramsOwnHandlersStay) {
  own_signals = 0;
  std::signal(SIGTERM, &on_own_signal);
  std::signal(SIGINT, SIG_IGN);
  std::atomic<int> told{0};
  {
    const StopSignal one([&] { ++told; });
    std::raise(SIGTERM);
    std::raise(SIGINT);
    EXPECT_EQ(handler_of(SIGTERM), &on_own_signal);
    EXPECT_EQ(handler_of(SIGINT), SIG_IGN);
  }
  EXPECT_EQ(own_signals, 1);
  EXPECT_EQ(told, 0);
  EXPECT_EQ(handler_of(SIGTERM), &on_own_signal);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace
