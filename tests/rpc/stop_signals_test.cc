#include "sinew/rpc/worker/stop_signals.h"

#include <atomic>
#include <csignal>
#include <optional>

#include "gtest/gtest.h"
#include "sinew/testing/eventually.h"

using sinew::internal::StopSignals;
using sinew::testing::eventually;

namespace {

std::atomic<int> own_signals{0};
void on_own_signal(int) { ++own_signals; }

using Handler = void (*)(int);

Handler handler_of(int signal) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

TEST(StopSignals, AllAreToldOnceAndTheNextSignalIsTheSystems) {
  for (const int signal : {SIGTERM, SIGINT}) {
    std::atomic<int> first{0};
    std::atomic<int> second{0};
    {
      const StopSignals one([&] { ++first; });
      const StopSignals other([&] { ++second; });
      ASSERT_NE(handler_of(SIGTERM), SIG_DFL);
      std::raise(signal);
      EXPECT_TRUE(eventually([&] { return first == 1 && second == 1; }));
      EXPECT_EQ(handler_of(SIGTERM), SIG_DFL);
      EXPECT_EQ(handler_of(SIGINT), SIG_DFL);
    }
    EXPECT_EQ(first, 1);
    EXPECT_EQ(second, 1);
  }
}

TEST(StopSignals, NobodyIsToldOfOneThatCameBefore) {
  std::atomic<int> told{0};
  {
    const StopSignals signals([] {});
  }
  EXPECT_EQ(handler_of(SIGTERM), SIG_DFL);
  {
    const StopSignals signals([&] { ++told; });
  }
  EXPECT_EQ(told, 0);
}

TEST(StopSignals, TheProgramsOwnHandlerStays) {
  own_signals = 0;
  std::signal(SIGTERM, &on_own_signal);
  std::signal(SIGINT, SIG_IGN);
  std::atomic<int> told{0};
  {
    const StopSignals signals([&] { ++told; });
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
