#include "sinew/rpc/membership/directory.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

Member member(const std::string& name, int rank, std::uint64_t incarnation = 1) {
  return {{name, rank, {incarnation}}, "host:" + std::to_string(rank), 0};
}

TEST(DirectoryTest, FindsByNameRankAndIncarnation) {
  Directory directory;
  directory.replace(1, {member("b", 1), member("a", 0)});
  EXPECT_EQ(directory.find("a")->worker.rank, 0);
  EXPECT_EQ(directory.find(1)->worker.name, "b");
  EXPECT_EQ(directory.find(member("b", 1).worker)->address, "host:1");
  ASSERT_EQ(directory.members().size(), 2u);
  EXPECT_EQ(directory.members()[0].worker.name, "a");
}

TEST(DirectoryTest, ErrorsNameWhatIsKnown) {
  Directory directory;
  directory.replace(1, {member("agent", 0), member("observer", 3)});
  EXPECT_EQ(directory.find("agnet").status(),
            absl::NotFoundError("no worker is called 'agnet'; known workers: agent, observer"));
  EXPECT_EQ(directory.find(1).status(),
            absl::NotFoundError("no worker has rank 1; known ranks: 0, 3"));
  const absl::Status replaced = directory.find(member("agent", 0, 9).worker).status();
  EXPECT_EQ(replaced.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(replaced.message().find("has been replaced"), std::string::npos);
  EXPECT_NE(Directory().find("x").status().message().find("known workers: none"),
            std::string::npos);
}

TEST(DirectoryTest, ShowsSixteenNamesAtMost) {
  Directory directory;
  std::vector<Member> members;
  for (int i = 0; i < 20; ++i) members.push_back(member("w" + std::to_string(100 + i), i));
  directory.replace(1, std::move(members));
  const absl::Status status = directory.find("x").status();
  const std::string text(status.message().data(), status.message().size());
  EXPECT_NE(text.find("w115, and 4 more"), std::string::npos) << text;
  EXPECT_EQ(text.find("w116"), std::string::npos) << text;
}

// The two sides of a job may have let one worker in, each with a rank of its own.
TEST(DirectoryTest, AnotherRankIsNoOtherProcess) {
  Directory directory;
  directory.replace(1, {member("a", 0), member("b", 3)});
  directory.replace(2, {member("a", 0), member("b", 2)});
  EXPECT_EQ(directory.find(member("b", 3).worker)->worker.rank, 2);
  EXPECT_FALSE(directory.find(3).ok());
}

TEST(DirectoryTest, OldListsAreIgnored) {
  Directory directory;
  directory.replace(5, {member("a", 0), member("b", 1), member("c", 2)});
  directory.replace(5, {});
  directory.replace(4, {});
  EXPECT_EQ(directory.members().size(), 3u);
  directory.replace(6, {member("a", 0), member("b", 1, 2)});
  EXPECT_EQ(directory.members().size(), 2u);
  EXPECT_EQ(directory.find("b")->worker.incarnation.value, 2u);
}

TEST(DirectoryTest, OfTwoWithOneNameOrRankTheLaterOneStays) {
  Directory directory;
  directory.replace(1, {member("a", 0), member("a", 1, 2)});
  EXPECT_FALSE(directory.find(0).ok());
  EXPECT_EQ(directory.find(1)->worker.incarnation.value, 2u);
  directory.replace(2, {member("a", 1), member("b", 1), member("joining", -1)});
  EXPECT_FALSE(directory.find("a").ok());
  EXPECT_EQ(directory.find(1)->worker.name, "b");
  EXPECT_TRUE(directory.find("joining").ok());
  EXPECT_FALSE(directory.find(-1).ok());
}

}  // namespace
}  // namespace sinew::internal
