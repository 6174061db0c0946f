// Leaving is not losing: processes pass a barrier to which all have come, whichever of them leaves
// as soon as it has passed.

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::testing::ChildProcess;
using sinew::testing::eventually;
using ::testing::StartsWith;

namespace {

using Children = std::vector<std::unique_ptr<ChildProcess>>;

std::unique_ptr<ChildProcess> spawn() {
  return std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
}

/// All pass a barrier, and one, which is told both at once, leaves. The others then are still
/// there.
void pass_and_leave(const Children& children, std::size_t leaver, const std::string& how) {
  for (const auto& child : children) {
    child->send("barrier 30000");
    if (child == children[leaver]) child->send(absl::StrCat("shutdown ", how, " 30000"));
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    EXPECT_EQ(children[i]->receive(), "ok ") << "at w" << i << ", when w" << leaver << " had left";
  }
  EXPECT_EQ(children[leaver]->receive(), "ok ");
}

TEST(Leaving, WithoutGraceBehindABarrierOfAFixedWorld) {
  constexpr int kWorld = 3;
  for (std::size_t round = 0; round < 9; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    const std::string meet = absl::StrCat("tcp://127.0.0.1:", sinew::testing::free_port());
    Children children;
    for (int rank = 0; rank < kWorld; ++rank) {
      children.push_back(spawn());
      children.back()->send(
          absl::StrCat("start name=w", rank, " init=", meet, " world=", kWorld, " rank=", rank));
    }
    for (const auto& child : children) ASSERT_THAT(child->receive(), StartsWith("ok "));
    // Mostly the leader: the others need its answers.
    pass_and_leave(children, round % 3 == 2 ? 1 + round / 3 % 2 : 0, "hard");
  }
}

TEST(Leaving, GracefullyBehindABarrierOfOpenMembership) {
  const sinew::testing::TemporaryFolder folder;
  const std::string start = absl::StrCat(" init=file://", folder.file("meet"));
  Children children;
  const auto add = [&](const std::string& name) {
    std::unique_ptr<ChildProcess>& child = children.emplace_back(spawn());
    ASSERT_THAT(child->ask(absl::StrCat("start name=", name, start)), StartsWith("ok "));
  };
  ASSERT_NO_FATAL_FAILURE(add("w5"));
  ASSERT_NO_FATAL_FAILURE(add("w6"));
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    // Leads, or follows.
    const std::string name = absl::StrCat(round % 3 == 2 ? "w9" : "w1", round);
    ASSERT_NO_FATAL_FAILURE(add(name));
    for (const auto& child : children) {
      ASSERT_TRUE(eventually([&] {
        const std::string members = child->ask("members");
        return members.find(name) != std::string::npos &&
               std::count(members.begin(), members.end(), ' ') == 3;
      }));
    }
    pass_and_leave(children, 2, "graceful");
    children.pop_back();
  }
}

// The second one has come back to a world that lacked the first one, and has heard of that later.
TEST(Leaving, TogetherAfterTwoWereGoneAndCameBack) {
  const sinew::testing::TemporaryFolder folder;
  const auto start = [&](int rank) {
    return absl::StrCat("start name=w", rank, " init=file://", folder.file("meet"),
                        " world=3 rank=", rank);
  };
  Children children;
  for (int rank = 0; rank < 3; ++rank) {
    children.push_back(spawn());
    children.back()->send(start(rank));
  }
  for (const auto& child : children) ASSERT_THAT(child->receive(), StartsWith("ok "));
  for (const int gone : {0, 2}) children[static_cast<std::size_t>(gone)]->signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return children[1]->ask("members") == "ok w1"; }));
  for (const int back : {2, 0}) {
    auto& child = children[static_cast<std::size_t>(back)];
    child = spawn();
    ASSERT_THAT(child->ask(start(back)), StartsWith("ok "));
  }
  for (const auto& child : children) child->send("shutdown graceful 30000");
  for (const auto& child : children) EXPECT_EQ(child->receive(), "ok ");
}

}  // namespace
