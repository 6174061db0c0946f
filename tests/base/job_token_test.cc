#include "sinew/rpc/base/job_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "sinew/tests/support/temporary_folder.h"

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "0123456789abcdef";

absl::StatusOr<std::string> read(const std::map<std::string, std::string>& variables) {
  return read_job_token([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

class JobTokenTest : public ::testing::Test {
 protected:
  std::string file(const std::string& text, mode_t mode) {
    const std::string path = folder_.file("token" + std::to_string(++files_));
    std::ofstream(path) << text;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  testing::TemporaryFolder folder_;
  int files_ = 0;
};

TEST_F(JobTokenTest, OfTheEnvironment) {
  EXPECT_EQ(*read({}), "");
  EXPECT_EQ(*read({{kJobToken, kToken}}), kToken);
  // That there is none is said too.
  EXPECT_EQ(*read({{kJobToken, ""}}), "");
  EXPECT_TRUE(says_job_token([](const std::string& name) {
    return name == kJobToken ? std::optional<std::string>("") : std::nullopt;
  }));
  EXPECT_EQ(*read({{kJobTokenFile, file(std::string(kToken) + "\n", 0600)}}), kToken);
  EXPECT_EQ(*read({{kJobTokenFile, file(kToken, 0440)}}), kToken);
  EXPECT_TRUE(read({{kJobToken, draw_job_token()}}).ok());
}

TEST_F(JobTokenTest, WhatIsNoneIsRefusedAndNotShown) {
  const std::string wrong[] = {"short", "with a blank in the middle", std::string(1025, 'x'),
                               "0123456789abcde\x01"};
  for (const std::string& token : wrong) {
    const absl::Status status = read({{kJobToken, token}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("SINEW_JOB_TOKEN has no token of a job"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(token)));
    const absl::Status of_file = read({{kJobTokenFile, file(token, 0600)}}).status();
    EXPECT_EQ(of_file.code(), absl::StatusCode::kInvalidArgument) << of_file;
  }
  EXPECT_THAT(std::string(read({{kJobToken, kToken}, {kJobTokenFile, "/x"}}).status().message()),
              HasSubstr("both SINEW_JOB_TOKEN and SINEW_JOB_TOKEN_FILE are set"));
}

TEST_F(JobTokenTest, AFileThatOthersCanReadOrChangeIsRefused) {
  for (const mode_t mode : {0644, 0660, 0602, 0604}) {
    EXPECT_THAT(std::string(read({{kJobTokenFile, file(kToken, mode)}}).status().message()),
                HasSubstr("others can read or change it; chmod 600"))
        << mode;
  }
  EXPECT_THAT(std::string(read({{kJobTokenFile, "/nowhere/at/all"}}).status().message()),
              HasSubstr("/nowhere/at/all cannot be read: No such file or directory"));
  EXPECT_THAT(std::string(read({{kJobTokenFile, folder_.path().string()}}).status().message()),
              HasSubstr(folder_.path().string()));
}

}  // namespace
}  // namespace sinew::internal
