#include "sinew/rpc/base/host_limits.h"
#include "sinew/tests/support/temporary_folder.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

namespace sinew::internal {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr char kSecondVersion[] =
    "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";

/// A tree with what /proc and /sys say.
class HostLimitsTest : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root_ + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  HostLimits limits() const { return parse_host_limits(root_); }
  void expect_memory(std::uint64_t most, const std::string& group) const {
    const auto found = limits().memory;
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->most, most);
    EXPECT_EQ(found->group, group);
  }
  void expect_quota(double quota) const {
    const std::optional<double> found = limits().cpu_quota;
    ASSERT_TRUE(found.has_value());
    EXPECT_DOUBLE_EQ(*found, quota);
  }
  void expect_threads(std::uint64_t most, std::uint64_t used, const std::string& group) const {
    const auto found = limits().threads;
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->most, most);
    EXPECT_EQ(found->used, used);
    EXPECT_EQ(found->group, group);
  }

  const sinew::testing::TemporaryFolder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(HostLimitsTest, NoneWhereNobodySays) {
  for (const std::string text : {"", "0::/", "what is this"}) {
    if (!text.empty()) write("/proc/self/cgroup", text);
    EXPECT_FALSE(limits().memory.has_value()) << text;
    EXPECT_FALSE(limits().cpu_quota.has_value()) << text;
    EXPECT_FALSE(limits().threads.has_value()) << text;
    EXPECT_FALSE(limits().allowed_cpus.has_value()) << text;
    EXPECT_GE(limits().cores(), 1) << text;
    EXPECT_FALSE(limits().threads_left().has_value()) << text;
  }
}

TEST_F(HostLimitsTest, OfTheMachine) {
  write("/proc/meminfo", "MemTotal:       24684160 kB\nMemFree:        20000000 kB");
  write("/proc/self/status", "Name:\tworker\nCpus_allowed:\tf1\nCpus_allowed_list:\t0,4-7\nX:\t9");
  expect_memory(24684160 * std::uint64_t{1024}, "");
  EXPECT_EQ(limits().allowed_cpus, 5);
  EXPECT_EQ(limits().cores(), 5);
}

TEST_F(HostLimitsTest, OfTheSecondVersion) {
  write("/proc/meminfo", "MemTotal:       1048576 kB");
  write("/proc/self/mountinfo", kSecondVersion);
  write("/proc/self/cgroup", "0::/job/worker");
  const std::string folder = "/sys/fs/cgroup/job/worker";
  write(folder + "/cpu.max", "max 100000");
  write(folder + "/memory.max", "max");
  write(folder + "/pids.max", "max");
  EXPECT_FALSE(limits().cpu_quota.has_value());
  EXPECT_FALSE(limits().threads.has_value());
  expect_memory(1024 * kMiB, "");
  write(folder + "/cpu.max", "150000 100000");
  write(folder + "/memory.max", "536870912");
  write(folder + "/pids.max", "512");
  write(folder + "/pids.current", "12");
  expect_quota(1.5);
  EXPECT_EQ(limits().cores(), std::min(2, static_cast<int>(std::thread::hardware_concurrency())));
  expect_memory(512 * kMiB, "/job/worker");
  expect_threads(512, 12, "/job/worker");
  EXPECT_EQ(limits().threads_left(), 500U);
  write(folder + "/memory.high", "268435456");
  expect_memory(256 * kMiB, "/job/worker");
}

TEST_F(HostLimitsTest, WhatIsAboveLimitsIt) {
  write("/proc/self/mountinfo", kSecondVersion);
  write("/proc/self/cgroup", "0::/job/worker");
  write("/sys/fs/cgroup/job/worker/cpu.max", "150000 100000");
  write("/sys/fs/cgroup/job/cpu.max", "50000 100000");
  write("/sys/fs/cgroup/job/worker/memory.max", "1073741824");
  write("/sys/fs/cgroup/job/memory.max", "536870912");
  write("/sys/fs/cgroup/memory.max", "2147483648");
  write("/sys/fs/cgroup/job/worker/pids.max", "100");
  write("/sys/fs/cgroup/job/worker/pids.current", "5");
  write("/sys/fs/cgroup/job/pids.max", "512");
  write("/sys/fs/cgroup/job/pids.current", "500");
  expect_quota(0.5);
  EXPECT_EQ(limits().cores(), 1);
  expect_memory(512 * kMiB, "/job");
  // The larger limit leaves less, since others are there.
  expect_threads(512, 500, "/job");
  write("/sys/fs/cgroup/job/pids.current", "600");
  EXPECT_EQ(limits().threads_left(), 0U);
}

TEST_F(HostLimitsTest, OfTheFirstVersion) {
  write("/proc/meminfo", "MemTotal:       1048576 kB");
  write("/proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "39 31 0:36 / /sys/fs/cgroup/the\\040pids rw - cgroup cgroup rw,pids\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw");
  write("/proc/self/cgroup",
        "5:devices:/other\n4:memory:/m\n3:pids:/p\n2:cpu,cpuacct:/worker\n1:name=systemd:/\n0::/");
  const std::string cpu = "/sys/fs/cgroup/cpu,cpuacct";
  write(cpu + "/cpu.cfs_quota_us", "-1");
  write(cpu + "/cpu.cfs_period_us", "100000");
  write(cpu + "/worker/cpu.cfs_quota_us", "-1");
  write(cpu + "/worker/cpu.cfs_period_us", "100000");
  write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_FALSE(limits().cpu_quota.has_value());
  expect_memory(1024 * kMiB, "");
  write(cpu + "/worker/cpu.cfs_quota_us", "25000");
  write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "536870912");
  write("/sys/fs/cgroup/the pids/p/pids.max", "64");
  expect_quota(0.25);
  expect_memory(512 * kMiB, "/m");
  expect_threads(64, 0, "/p");
}

TEST_F(HostLimitsTest, WithoutATableOfMountsTheyStandWhereTheyUsuallyDo) {
  write("/proc/self/cgroup", "2:memory:/m\n0::/worker");
  write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "536870912");
  write("/sys/fs/cgroup/worker/cpu.max", "200000 100000");
  expect_memory(512 * kMiB, "/m");
  expect_quota(2);
}

// A container often sees its own control group as the top one, under the path it has outside.
TEST_F(HostLimitsTest, OfAContainer) {
  write("/proc/self/mountinfo", kSecondVersion);
  write("/sys/fs/cgroup/cpu.max", "200000 100000");
  for (const std::string path : {"/not/there", "/../other", "/"}) {
    write("/proc/self/cgroup", "0::" + path);
    expect_quota(2);
  }
}

TEST_F(HostLimitsTest, OfAGroupWithinAContainer) {
  write("/proc/self/mountinfo", "29 23 0:26 /docker/4f /sys/fs/cgroup rw - cgroup2 cgroup rw");
  write("/sys/fs/cgroup/cpu.max", "200000 100000");
  write("/sys/fs/cgroup/worker/cpu.max", "100000 100000");
  write("/sys/fs/cgroup/2/cpu.max", "10000 100000");
  write("/proc/self/cgroup", "0::/docker/4f");
  expect_quota(2);
  write("/proc/self/cgroup", "0::/docker/4f/worker");
  expect_quota(1);
  write("/proc/self/cgroup", "0::/docker/4f2/2");
  expect_quota(2);
}

TEST_F(HostLimitsTest, WhatMakesNoSenseIsNoLimit) {
  write("/proc/self/cgroup", "0::/");
  write("/proc/self/mountinfo", "\n - \n1 2 3 4 - cgroup2\n1 2 3 / - cgroup2 x rw\nnothing");
  write("/proc/meminfo", "MemTotal: much");
  for (const std::string text : {"", "0 100000", "100000", "100000 0", "many cores", "1 2 3"}) {
    write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_FALSE(limits().cpu_quota.has_value()) << text;
  }
  for (const std::string text : {"", "-1", "12 MiB", "much", "99999999999999999999999", "0"}) {
    write("/sys/fs/cgroup/memory.max", text);
    EXPECT_FALSE(limits().memory.has_value()) << text;
  }
  for (const std::string text : {"", "-1", "few", "1 2"}) {
    write("/sys/fs/cgroup/pids.max", text);
    EXPECT_FALSE(limits().threads.has_value()) << text;
  }
  for (const std::string text : {"", "a", "3-1", "-1", "1-2-3", "1,,2"}) {
    write("/proc/self/status", "Cpus_allowed_list:\t" + text);
    EXPECT_FALSE(limits().allowed_cpus.has_value()) << text;
  }
}

TEST(OwnHostLimits, AreThere) {
  cpu_set_t cpus;
  ASSERT_EQ(::sched_getaffinity(0, sizeof cpus, &cpus), 0);
  const HostLimits limits = read_host_limits();
  ASSERT_TRUE(limits.memory.has_value());
  EXPECT_GT(limits.memory->most, 64 * kMiB);
  EXPECT_EQ(limits.allowed_cpus, CPU_COUNT(&cpus));
  EXPECT_LE(limits.cores(), CPU_COUNT(&cpus));
  cpu_set_t one;
  CPU_ZERO(&one);
  int first = 0;
  while (!CPU_ISSET(first, &cpus)) ++first;
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(read_host_limits().cores(), 1);
  ::sched_setaffinity(0, sizeof cpus, &cpus);
}

TEST(OwnHostLimits, ALimitOfFilesThatChangesIsSeen) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit less{before.rlim_cur - 1, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &less), 0);
  EXPECT_EQ(file_limit(), less.rlim_cur);
  EXPECT_EQ(read_host_limits().files, less.rlim_cur);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(file_limit(), before.rlim_cur);
}

TEST(HasCoreToSpareTest, IsTheSameWithinASecond) {
  const auto now = std::chrono::steady_clock::now();
  EXPECT_EQ(has_core_to_spare(now), read_host_limits().cpu_quota.value_or(2) > 1);
  EXPECT_EQ(has_core_to_spare(now), has_core_to_spare(now + std::chrono::milliseconds(999)));
}

}  // namespace
}  // namespace sinew::internal
