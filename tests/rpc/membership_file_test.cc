// Workers that meet over a file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "sinew/rpc/membership/file_rendezvous.h"
#include "sinew/tests/rpc/membership_world.h"

namespace sinew::internal {
namespace {

class FileMembershipTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "sinew-membership-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override {
    ::unlink(path().c_str());
    ::unlink((path() + ".lock").c_str());
    EXPECT_EQ(::rmdir(folder_.c_str()), 0);
  }
  std::string path() const { return folder_ + "/job"; }
  Rendezvous file(int rank = -1, int world_size = 0) const {
    const bool founds = world_size == 0 || rank == 0;
    return {Rendezvous::Kind::kFile, {}, path(), rank, world_size, founds};
  }
  std::string folder_;
};

TEST_F(FileMembershipTest, OpenJobOutlivesItsFounderAndRemovesTheFile) {
  MembershipWorld world;
  Worker& a = world.add("a", file());
  world.run();  // it is the first in the file
  Worker& b = world.add("b", file());
  world.advance(seconds(3));
  ASSERT_EQ(a.outcome(), "ok");
  ASSERT_EQ(b.outcome(), "ok");
  EXPECT_EQ(b.names(), (Names{"a", "b"}));
  a.membership->leave_async(seconds(5));
  world.advance(seconds(1));
  Worker& c = world.add("c", file());
  world.advance(seconds(3));
  EXPECT_EQ(c.outcome(), "ok");
  EXPECT_EQ(c.info().rank, 2) << "0 is the founder's";
  EXPECT_EQ(c.membership->coordinator().name, "b") << "the lowest rank coordinates";
  b.membership->leave_async(seconds(5));
  world.advance(seconds(1));
  c.membership->leave_async(seconds(5));
  world.advance(seconds(1));
  EXPECT_NE(::access(path().c_str(), F_OK), 0);
}

TEST_F(FileMembershipTest, FixedWorldOverAnOldFile) {
  const FileRendezvous old(path(), "job");
  ASSERT_TRUE(old.publish(member_at("at:gone", {"a", 0, {900}}), JobInstance{}).ok());
  ASSERT_TRUE(old.publish(member_at("at:gone2", {"b", 1, {901}}), JobInstance{}).ok());
  std::ofstream(path(), std::ios::app) << "garbage\n";
  MembershipWorld world;
  Worker& b = world.add("b", file(1, 2));
  world.advance(seconds(1));
  Worker& a = world.add("a", file(0, 2));
  world.advance(seconds(3));
  EXPECT_EQ(a.outcome(), "ok");
  EXPECT_EQ(b.outcome(), "ok");
  ASSERT_FALSE(b.warnings.empty());
  EXPECT_THAT(b.warnings[0], ::testing::HasSubstr("line 3 of the rendezvous file"));
  EXPECT_EQ(old.read()->entries.size(), 2u);
}

TEST_F(FileMembershipTest, RankZeroComesBackByTheFile) {
  MembershipWorld world;
  Worker& a = world.add("a", file(0, 2));
  Worker& b = world.add("b", file(1, 2));
  world.advance(seconds(3));
  ASSERT_EQ(b.outcome(), "ok");
  world.lose(a);
  world.advance(seconds(1));
  Worker& a2 = world.add("a", file(0, 2));
  world.advance(seconds(5));
  EXPECT_EQ(a2.outcome(), "ok");
  EXPECT_EQ(b.names(), (Names{"a", "b"}));
}

TEST_F(FileMembershipTest, SilentEntriesAreNamedAtTheDeadline) {
  const FileRendezvous old(path(), "job");
  ASSERT_TRUE(old.publish(member_at("at:hole", {"a", 0, {900}}), JobInstance{}).ok());
  MembershipWorld world;
  world.network.silence("at:hole");
  Worker& b = world.add("b", file(), seconds(12));
  world.advance(seconds(14));
  EXPECT_THAT(b.outcome(), ::testing::HasSubstr("none of the 1 workers in the rendezvous file"));
  EXPECT_THAT(b.outcome(), ::testing::HasSubstr("remove the file"));
}

TEST_F(FileMembershipTest, EmptyFileIsNamedAtTheDeadline) {
  MembershipWorld world;
  Worker& b = world.add("b", file(1, 2), seconds(5));
  world.advance(seconds(6));
  EXPECT_THAT(b.outcome(), ::testing::HasSubstr("names no worker of the job"));
}

}  // namespace
}  // namespace sinew::internal
