#include "sinew/examples/common/yaml_config.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/flags.h"
#include "sinew/tests/support/temporary_folder.h"

namespace examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class YamlConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    app_.add_option("--data", data_);
    add_whole(app_, "--batch-size", batch_, 1, 100, "");
    add_number(app_, "--lr", lr_, 0, 1, "0 to 1", "");
    app_.add_flag("--resume", resume_);
    add_yaml_config(app_);
  }

  /// What was wrong; empty: nothing.
  std::string parse(const std::string& yaml, std::vector<std::string> flags = {}) {
    write_file(file_, yaml);
    flags.insert(flags.end(), {"--config", file_.string()});
    std::reverse(flags.begin(), flags.end());
    try {
      app_.parse(flags);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return {};
  }

  CLI::App app_;
  std::string data_ = "mnist";
  int batch_ = 10;
  double lr_ = 0.1;
  bool resume_ = false;
  const sinew::testing::TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "flags.yaml";
};

TEST_F(YamlConfigTest, SetsFlags) {
  EXPECT_EQ(parse("# A comment\ndata: /some where\nbatch-size: 7\nlr: 0.5\nresume: true\n"), "");
  EXPECT_EQ(data_, "/some where");
  EXPECT_EQ(batch_, 7);
  EXPECT_EQ(lr_, 0.5);
  EXPECT_TRUE(resume_);
}

TEST_F(YamlConfigTest, TheCommandLineWins) {
  EXPECT_EQ(parse("batch-size: 7\nlr: 0.5\n", {"--lr", "0.25"}), "");
  EXPECT_EQ(batch_, 7);
  EXPECT_EQ(lr_, 0.25);
}

TEST_F(YamlConfigTest, AnEmptyFileSetsNothing) {
  EXPECT_EQ(parse("# Nothing yet\n"), "");
  EXPECT_EQ(batch_, 10);
}

TEST_F(YamlConfigTest, NamesTheNearestFlagForAKeyThatIsNone) {
  EXPECT_THAT(parse("lr: 0.5\nbatchsize: 7\n"),
              AllOf(HasSubstr(file_.string()), HasSubstr("line 2"), HasSubstr("'batchsize'"),
                    HasSubstr("did you mean 'batch-size'?")));
  EXPECT_THAT(parse("dta: x\n"), HasSubstr("did you mean 'data'?"));
  EXPECT_THAT(parse("config: x\n"), HasSubstr("there is no 'config'"));
}

TEST_F(YamlConfigTest, ValuesAreCheckedAsThoseOfFlags) {
  EXPECT_THAT(parse("batch-size: 101\n"),
              AllOf(HasSubstr("--batch-size"), HasSubstr("from 1 to 100")));
  EXPECT_THAT(parse("resume: perhaps\n"), HasSubstr("resume"));
}

TEST_F(YamlConfigTest, RefusesWhatIsNoMapOfValues) {
  EXPECT_THAT(parse("- 1\n- 2\n"), HasSubstr("'epochs: 10'"));
  EXPECT_THAT(parse("data: [a, b]\n"), HasSubstr("data takes one value"));
  EXPECT_THAT(parse("lr: 1\nlr: 0.5\n"), HasSubstr("lr is there twice"));
  EXPECT_THAT(parse("lr: [0.5\n"), AllOf(HasSubstr(file_.string()), HasSubstr("line 2")));
  EXPECT_THAT(parse("[a]: 1\n"), HasSubstr("line 1"));
}

TEST_F(YamlConfigTest, NamesAFileThatIsMissing) {
  std::vector<std::string> flags = {"/no/such/file", "--config"};
  try {
    app_.parse(flags);
    FAIL();
  } catch (const CLI::ParseError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/no/such/file"));
  }
}

}  // namespace
}  // namespace examples
