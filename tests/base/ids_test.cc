#include "sinew/rpc/base/ids.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <unordered_set>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash_testing.h"

namespace sinew {
namespace {

TEST(SecretTest, IsAnotherOneEachTime) {
  std::set<std::uint64_t> drawn;
  for (int i = 0; i < 1000; ++i) drawn.insert(random_secret());
  EXPECT_EQ(drawn.size(), 1000u);
}

TEST(WorkerInfoTest, EqualWhenAllThreeAgree) {
  const WorkerInfo info{"trainer", 2, {7}};
  EXPECT_EQ(info, (WorkerInfo{"trainer", 2, {7}}));
  EXPECT_NE(info, (WorkerInfo{"observer", 2, {7}}));
  EXPECT_NE(info, (WorkerInfo{"trainer", 3, {7}}));
  EXPECT_NE(info, (WorkerInfo{"trainer", 2, {8}})) << "came back under its old name";
  const std::unordered_set<WorkerInfo> std_set{info, info};
  const absl::flat_hash_set<WorkerInfo> absl_set{info, {"trainer", 2, {8}}};
  EXPECT_EQ(std_set.size(), 1u);
  EXPECT_EQ(absl_set.size(), 2u);
}

TEST(WorkerInfoTest, Prints) {
  std::ostringstream out;
  out << WorkerInfo{"trainer", 2, {7}};
  EXPECT_EQ(out.str(), "WorkerInfo(name=trainer, rank=2)");
}

TEST(GlobalIdTest, ComparesAllPartsAndShowsNoSecret) {
  const RRefId id{{0xabc}, 5, 0xdeadbeef};
  EXPECT_FALSE(id.empty());
  EXPECT_TRUE(RRefId().empty());
  EXPECT_EQ(id, (RRefId{{0xabc}, 5, 0xdeadbeef}));
  EXPECT_NE(id, (RRefId{{0xabc}, 5, 0xdeadbee0})) << "a guessed id is another id";
  EXPECT_NE(id, (RRefId{{0xabc}, 6, 0xdeadbeef}));
  EXPECT_NE(id, (RRefId{{0xabd}, 5, 0xdeadbeef}));
  EXPECT_LT(id, (RRefId{{0xabc}, 6, 0}));
  EXPECT_EQ(to_string(id), "0000000000000abc.5");
}

TEST(GlobalIdTest, Hashes) {
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {RRefId(), RRefId{{1}, 2, 3}, RRefId{{1}, 2, 4}, RRefId{{1}, 3, 3}, RRefId{{2}, 2, 3}}));
}

}  // namespace
}  // namespace sinew
