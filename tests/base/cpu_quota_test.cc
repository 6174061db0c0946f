#include "sinew/rpc/base/threads/cpu_quota.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace sinew::internal {
namespace {

/// A tree with what /proc and /sys say.
class CpuQuotaTest : public ::testing::Test {
 protected:
  CpuQuotaTest() { std::filesystem::remove_all(root_); }
  ~CpuQuotaTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root_ + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  void expect_quota(double quota) const {
    const std::optional<double> found = cpu_quota(root_);
    ASSERT_TRUE(found.has_value());
    EXPECT_DOUBLE_EQ(*found, quota);
  }

  const std::string root_ = ::testing::TempDir() + "cpu_quota_test";
};

TEST_F(CpuQuotaTest, NoneWhereNobodySays) {
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  write("/proc/self/cgroup", "0::/");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  write("/proc/self/cgroup", "what is this");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
}

TEST_F(CpuQuotaTest, OfTheSecondVersion) {
  write("/proc/self/cgroup", "0::/job/worker");
  write("/sys/fs/cgroup/job/worker/cpu.max", "max 100000");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  write("/sys/fs/cgroup/job/worker/cpu.max", "150000 100000");
  expect_quota(1.5);
  // What is above limits it, too.
  write("/sys/fs/cgroup/job/cpu.max", "50000 100000");
  expect_quota(0.5);
}

TEST_F(CpuQuotaTest, OfTheFirstVersion) {
  write("/proc/self/cgroup", "5:devices:/other\n2:cpu,cpuacct:/worker\n1:name=systemd:/\n0::/");
  const std::string folder = "/sys/fs/cgroup/cpu,cpuacct";
  write(folder + "/cpu.cfs_quota_us", "-1");
  write(folder + "/cpu.cfs_period_us", "100000");
  write(folder + "/worker/cpu.cfs_quota_us", "-1");
  write(folder + "/worker/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  write(folder + "/worker/cpu.cfs_quota_us", "25000");
  expect_quota(0.25);
}

// A container often sees its own control group as the top one, under the path it has outside.
TEST_F(CpuQuotaTest, OfAContainer) {
  write("/proc/self/cgroup", "0::/not/there");
  write("/sys/fs/cgroup/cpu.max", "200000 100000");
  expect_quota(2);
}

TEST_F(CpuQuotaTest, WhatMakesNoSenseIsNoLimit) {
  write("/proc/self/cgroup", "0::/");
  for (const std::string text : {"", "0 100000", "100000", "100000 0", "many cores", "1 2 3"}) {
    write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(cpu_quota(root_), std::nullopt) << text;
  }
}

TEST(HasCoreToSpareTest, IsTheSameWithinASecond) {
  const auto now = std::chrono::steady_clock::now();
  EXPECT_EQ(has_core_to_spare(now), cpu_quota().value_or(2) > 1);
  EXPECT_EQ(has_core_to_spare(now), has_core_to_spare(now + std::chrono::milliseconds(999)));
}

}  // namespace
}  // namespace sinew::internal
