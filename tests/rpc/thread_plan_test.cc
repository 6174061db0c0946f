#include "sinew/rpc/worker/thread_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

HostLimits host_with(int cpus, std::optional<std::uint64_t> threads) {
  HostLimits limits;
  limits.allowed_cpus = cpus;
  if (threads.has_value()) limits.threads = HostLimits::Threads{*threads, 0, "/job"};
  return limits;
}

TEST(ThreadPlan, AThreadForEachCore) {
  EXPECT_EQ(handler_threads({}, host_with(64, std::nullopt)), 64U);
  EXPECT_EQ(handler_threads({}, host_with(1, std::nullopt)), 4U);
  HostLimits limits = host_with(64, std::nullopt);
  limits.cpu_quota = 9.5;
  EXPECT_EQ(handler_threads({}, limits), 10U);
  EXPECT_EQ(computing_threads({}, limits, 64), 10);
  EXPECT_EQ(computing_threads({}, limits, 3), 3);
}

TEST(ThreadPlan, AllTogetherStayWithinWhatMayBeStarted) {
  const WorkerOptions options;
  const std::size_t own = threads_at_start(options);
  EXPECT_GE(own, 16U);
  for (const int cpus : {1, 2, 8, 64, 256}) {
    for (std::uint64_t threads = own; threads < 5000; threads += threads / 9) {
      const HostLimits limits = host_with(cpus, threads);
      const std::size_t handlers = handler_threads(options, limits);
      const int computing = computing_threads(options, limits, cpus);
      ASSERT_GE(handlers, 1U);
      ASSERT_GE(computing, 1);
      ASSERT_LE(own + handlers * static_cast<std::size_t>(computing), std::max(threads, own + 1))
          << cpus << " CPUs, " << threads << " threads";
    }
  }
  // As many others as there are leave less.
  HostLimits limits = host_with(64, 512);
  EXPECT_GT(computing_threads(options, limits, 64), 1);
  limits.threads->used = 460;
  EXPECT_LT(computing_threads(options, limits, 64), 4);
  EXPECT_LT(handler_threads(options, limits), 16U);
}

TEST(ThreadPlan, WhatTheUserSaysCounts) {
  WorkerOptions options;
  options.num_threads = 300;
  EXPECT_EQ(handler_threads(options, host_with(2, 512)), 300U);
  EXPECT_EQ(computing_threads(options, host_with(64, 512), 64), 1);
}

TEST(ThreadPlan, APeersWindowIsAQuarterOfTheGroupsMemoryAtMost) {
  WorkerOptions options;
  HostLimits limits = host_with(2, std::nullopt);
  EXPECT_EQ(smaller_window(options, limits), "");
  limits.memory = HostLimits::Bound{256 * kMiB, ""};
  EXPECT_EQ(receive_window(options, limits), 256 * kMiB) << "it is the machine's";
  limits.memory->group = "/job";
  EXPECT_EQ(receive_window(options, limits), 64 * kMiB);
  EXPECT_THAT(smaller_window(options, limits),
              HasSubstr("the control group /job has 256 MiB of memory: each peer may have 64 MiB "
                        "of calls waiting here, not 256"));
  options.receive_window_bytes = 64 * kMiB;
  EXPECT_EQ(smaller_window(options, limits), "");
}

}  // namespace
}  // namespace sinew::internal
