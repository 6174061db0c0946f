#include "sinew/examples/common/files.h"

#include <fstream>
#include <iterator>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/support/temporary_folder.h"

namespace examples {
namespace {

using testing::HasSubstr;

TEST(WriteFile, MakesFoldersAndReplacesFiles) {
  const sinew::testing::TemporaryFolder folder;
  const auto file = folder.path() / "deep" / "curve.csv";
  write_file(file, "a longer first content\n");
  write_file(file, "second\n");
  std::ifstream in(file);
  const std::string content((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_EQ(content, "second\n");
}

TEST(WriteFile, NamesTheFileThatCannotBeWritten) {
  try {
    write_file("/dev/null/curve.csv", "x");
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/dev/null/curve.csv"));
  }
}

TEST(ReplaceFile, LeavesOneFile) {
  const sinew::testing::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
  for (const char* content : {"first", "second"}) {
    replace_file(folder / "latest", content);
    EXPECT_EQ(read_file(folder / "latest"), content);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST(ReadFile, NamesTheFileThatCannotBeRead) {
  for (const char* name : {"/dev/null/text", "/"}) {
    try {
      read_file(name);
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("cannot read ") + name));
    }
  }
}

TEST(Numbers, AreWrittenTheSameEverywhere) {
  EXPECT_EQ(number(0.1), "0.1");
  EXPECT_EQ(fixed(1234.567, 2), "1234.57");
  EXPECT_EQ(fixed(2, 1), "2.0");
}

}  // namespace
}  // namespace examples
