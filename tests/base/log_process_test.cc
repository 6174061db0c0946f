// Lines of the log as SINEW_LOG has them, by processes of their own: what that says is read once.

#include "sinew/rpc/base/log.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/support/temporary_folder.h"

namespace sinew::internal {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// What a child writes to stderr whose environment says that; null: it says nothing.
std::string logged(const char* form) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "stderr").string();
  const pid_t child = fork();
  if (child == 0) {
    if (form != nullptr) setenv("SINEW_LOG", form, 1);
    if (freopen(path.c_str(), "w", stderr) == nullptr) _exit(1);
    log_line("w\"0", "first\nsecond");
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Log, IsTextForPeople) {
  EXPECT_THAT(logged(nullptr), StartsWith("[sinew w\"0] first\n"));
  EXPECT_EQ(logged("text"), logged(nullptr));
}

TEST(Log, IsALineOfJson) {
  EXPECT_THAT(logged("json"),
              ContainsRegex(R"(^\{"time":[0-9]+\.[0-9]{3},"worker":"w\\"0","text":"first second"\})"
                            "\n$"));
}

TEST(Log, IsNotWritten) { EXPECT_EQ(logged("none"), ""); }

TEST(Log, SaysWhatItDoesNotKnow) {
  EXPECT_THAT(logged("xml"), HasSubstr("SINEW_LOG is \"xml\": text, json and none are known"));
  EXPECT_THAT(logged("xml"), HasSubstr("[sinew w\"0] first"));
}

}  // namespace
}  // namespace sinew::internal
