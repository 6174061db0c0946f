#include "sinew/examples/actor_learner/learner/checkpoint_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/common/files.h"
#include "sinew/tests/support/temporary_folder.h"

namespace actor_learner {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CheckpointFolderTest : public testing::Test {
 protected:
  CheckpointFolder checkpoints() const { return CheckpointFolder(folder_ / "checkpoints"); }
  fs::path file(const std::string& name) const { return folder_ / "checkpoints" / name; }
  std::string newest() {
    const auto found =
        checkpoints().newest([&](const std::string& line) { told_.push_back(line); });
    return found ? found->content : "none";
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_ / "checkpoints")) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  const sinew::testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  std::vector<std::string> told_;
};

TEST_F(CheckpointFolderTest, HasWhatWasSavedLast) {
  EXPECT_EQ(newest(), "none");
  EXPECT_EQ(checkpoints().next_number(), 1);
  checkpoints().save("one");
  checkpoints().save(std::string("two\n\0more", 9));
  EXPECT_EQ(newest(), std::string("two\n\0more", 9));
  EXPECT_EQ(checkpoints().next_number(), 3);
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(CheckpointFolderTest, KeepsThreeAndCountsOn) {
  for (const char* content : {"1", "2", "3", "4", "5"}) checkpoints().save(content);
  EXPECT_THAT(names(), ElementsAre("checkpoint-000003.ckpt", "checkpoint-000004.ckpt",
                                   "checkpoint-000005.ckpt"));
}

TEST_F(CheckpointFolderTest, ADamagedOneIsNamedAndTheOneBeforeIsUsed) {
  const std::string content(5000, 'x');
  const auto damages = {
      +[](std::string whole) { return whole.substr(0, whole.size() / 2); },
      +[](std::string whole) { return whole + "x"; },
      +[](std::string whole) { return whole.replace(3000, 1, "y"); },
      +[](std::string whole) { return whole.replace(3, 1, "y"); },
      +[](std::string) { return std::string(); },
  };
  checkpoints().save("good");
  std::int64_t number = 2;
  for (const auto& damage : damages) {
    checkpoints().save(content);
    const std::string name = "checkpoint-00000" + std::to_string(number);
    const std::string whole = examples::read_file(file(name + ".ckpt"));
    examples::write_file(file(name + ".ckpt"), damage(whole));
    EXPECT_EQ(newest(), "good");
    ASSERT_FALSE(told_.empty());
    EXPECT_THAT(told_.back(), HasSubstr(name + ".ckpt is damaged"));
    EXPECT_TRUE(fs::exists(file(name + ".damaged")));
    EXPECT_EQ(checkpoints().next_number(), ++number) << "no number is used twice";
    EXPECT_EQ(told_.size(), static_cast<std::size_t>(number - 2));
  }
  EXPECT_EQ(newest(), "good");
  EXPECT_EQ(told_.size(), damages.size()) << "it is told once";
}

TEST_F(CheckpointFolderTest, OnlyDamagedOnesAreNoReasonToBeginAnew) {
  checkpoints().save("one");
  examples::write_file(file("checkpoint-000001.ckpt"), "");
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT([&] { newest(); },
                testing::ThrowsMessage<std::runtime_error>(HasSubstr("only damaged checkpoints")));
  }
}

TEST_F(CheckpointFolderTest, OtherFilesDoNotMatter) {
  checkpoints().save("one");
  // What is left of a save() that was killed, and what others put there.
  for (const char* name : {"checkpoint-000002.ckpt.new", "checkpoint-x.ckpt", "checkpoint-.ckpt",
                           "notes.txt", "other-000009.ckpt"}) {
    examples::write_file(file(name), "?");
  }
  EXPECT_EQ(newest(), "one");
  EXPECT_EQ(checkpoints().next_number(), 2);
  checkpoints().save("two");
  EXPECT_EQ(newest(), "two");
}

}  // namespace
}  // namespace actor_learner
