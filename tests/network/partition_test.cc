// A host is cut off from the others, and comes back.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/network/network_fixture.h"

namespace {

using sinew::testing::NetworkTest;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Partition : public NetworkTest {
 protected:
  /// a, b, ... on hosts 1, 2, ...
  std::vector<Child> start(int count, const std::string& more) {
    make(count);
    std::vector<Child> children;
    for (int i = 0; i < count; ++i) {
      children.push_back(begin(i + 1, std::string(1, static_cast<char>('a' + i)),
                               absl::StrCat("rank=", i, " ", more)));
    }
    for (const Child& child : children) EXPECT_THAT(child->receive(), StartsWith("ok "));
    return children;
  }
  static void expect_state(sinew::testing::ChildProcess& child, const std::string& state) {
    EXPECT_EVENTUALLY(child.ask("state"), "ok " + state);
  }
};

TEST_F(Partition, WhoIsCutOffFromTheRegistrarIsOutOfTheJob) {
  const std::vector<Child> all = start(3, "world=3");
  for (const Child& child : all) expect_members(*child, "a b c");
  world().cut(3);
  for (int i : {0, 1}) expect_members(*all[i], "a b");
  // Alone it can decide nothing.
  expect_state(*all[2], "suspected, runs");
  EXPECT_EQ(all[0]->ask("add b"), "ok 3");
  EXPECT_THAT(all[0]->ask("add c"), StartsWith("error NOT_FOUND"));
  world().heal(3);
  expect_state(*all[2], "evicted, does not run");
  EXPECT_THAT(all[2]->ask("add b"), StartsWith("error ABORTED"));
  for (int i : {0, 1}) {
    expect_members(*all[i], "a b");
    expect_state(*all[i], "member, runs");
  }
}

TEST_F(Partition, TheListOfTheRegistrarHoldsAlsoWhereItIsCutOff) {
  const std::vector<Child> all = start(4, "");
  for (const Child& child : all) expect_members(*child, "a b c d");
  world().cut(1);
  // They go on without it meanwhile, as far as they need nothing decided.
  for (int i : {1, 2, 3}) expect_state(*all[i], "suspected, runs");
  EXPECT_EQ(all[1]->ask("add c"), "ok 3");
  expect_members(*all[0], "a");
  expect_state(*all[0], "member, runs");
  world().heal(1);
  for (int i : {1, 2, 3}) {
    expect_state(*all[i], "evicted, does not run");
    EXPECT_THAT(all[i]->ask("rejoin"), StartsWith("ok "));
  }
  for (const Child& child : all) expect_members(*child, "a b c d");
}

TEST_F(Partition, AShortCutLosesNothing) {
  const std::vector<Child> all = start(2, "");
  for (const Child& child : all) expect_members(*child, "a b");
  EXPECT_EQ(all[1]->ask("add a"), "ok 3");
  world().cut(2);
  all[1]->send("add a");
  all[0]->send("add b");
  world().heal(2);
  EXPECT_EQ(all[1]->receive(), "ok 3");
  EXPECT_EQ(all[0]->receive(), "ok 3");
  for (const Child& child : all) expect_state(*child, "member, runs");
}

}  // namespace
