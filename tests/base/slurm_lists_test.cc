#include "sinew/rpc/base/internal/slurm_lists.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

std::string nodes_of(const std::string& text) {
  const auto nodes = parse_slurm_nodes(text);
  if (!nodes.ok()) return "wrong";
  return absl::StrCat(nodes->first, " ", nodes->count);
}

TEST(SlurmListsTest, Nodes) {
  const std::pair<std::string, std::string> cases[] = {
      {"login", "login 1"},
      {"n[1-3,07]", "n1 4"},
      {"n[07,1-3]", "n07 4"},
      {"host[001-010]-ib", "host001-ib 10"},
      {"n[1-3,07],host[001-010]-ib,login", "n1 15"},
      {"login,n[1-3]", "login 4"},
      {"rack[2-3]n[04-05,9]", "rack2n04 6"},
      {"a-b-1,a-b-2", "a-b-1 2"},
      {"n[5]", "n5 1"},
      {"[1-2]", "1 2"},
      {"gpu-a.example.org", "gpu-a.example.org 1"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(nodes_of(text), expected) << text;
}

TEST(SlurmListsTest, WhatIsNoListOfNodesIsShown) {
  for (const std::string text :
       {"",         ",",        "n1,",       ",n1",        "n1,,n2",
        "n[",       "n]",       "n[]",       "n[1-3",      "n1-3]",
        "n[[1-2]]", "n[1-[2]]", "n[1]]",     "n]1]",       "n[3-1]",
        "n[1-]",    "n[-1]",    "n[1-2-3]",  "n[a-c]",     "n[1,,2]",
        "n[1,]",    "n[ 1]",    "n[1-2],m[", "n[0x1-0x3]", "n[9999999999999999999999]",
        "n 1",      "n[1-2] ",  "a/b"}) {
    const auto nodes = parse_slurm_nodes(text);
    ASSERT_EQ(nodes.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(nodes.status().message(), absl::StrCat("'", text, "'")))
        << nodes.status();
  }
}

TEST(SlurmListsTest, HugeRangesAreOnlyCounted) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(nodes_of("n[0-999999999999]"), "n0 1000000000000");
  EXPECT_EQ(nodes_of(absl::StrCat("n[0-", kMost, "]")), absl::StrCat("n0 ", kMost));
  EXPECT_EQ(nodes_of(absl::StrCat("n[1-", kMost, ",1-", kMost, "]")), absl::StrCat("n1 ", kMost));
  std::string many;
  for (int i = 0; i < 100; ++i) many += "n[0-999999999]";
  EXPECT_EQ(parse_slurm_nodes(many)->count, kMost);
}

TEST(SlurmListsTest, TasksOfANode) {
  EXPECT_EQ(parse_slurm_tasks_of_node("4", 0).value_or(-1), 4);
  for (int node = 0; node < 5; ++node) {
    const int expected[] = {2, 2, 1, 7, 7};
    EXPECT_EQ(parse_slurm_tasks_of_node("2(x2),1,7(x999999999999)", node).value_or(-1),
              expected[node]);
  }
  for (const std::string text : {"", "x", "2(x", "2(x)", "2(3)", "(x2)", "2(x2)x", "2,,1", "-2",
                                 "99999999999", "2(x99999999999999999999)"}) {
    const auto tasks = parse_slurm_tasks_of_node(text, 9);
    EXPECT_EQ(tasks.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(tasks.status().message(), absl::StrCat("'", text, "'")))
        << tasks.status();
  }
  EXPECT_TRUE(
      absl::StrContains(parse_slurm_tasks_of_node("2(x2)", 2).status().message(), "has no node 2"));
}

TEST(SlurmListsTest, SurviveJunk) {
  const std::uint32_t seed = 20261126;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string pieces[] = {"n",  "[",  "]", ",",    "-",         "1",
                                "07", "(x", ")", "\xff", "9999999999"};
  int accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string text;
    for (std::size_t n = random() % 9; n > 0; --n) text += pieces[random() % std::size(pieces)];
    const auto nodes = parse_slurm_nodes(text);
    const auto tasks = parse_slurm_tasks_of_node(text, 1);
    ASSERT_TRUE(!tasks.ok() || *tasks >= 0) << text;
    if (!nodes.ok()) continue;
    ++accepted;
    ASSERT_GE(nodes->count, 1) << text;
    ASSERT_FALSE(nodes->first.empty()) << text;
    ASSERT_EQ(nodes->first.find_first_of("[],"), std::string::npos) << text;
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace sinew::internal
