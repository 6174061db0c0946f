#include "sinew/examples/common/files.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace examples {
namespace {

using testing::HasSubstr;

TEST(WriteFile, MakesFoldersAndReplacesFiles) {
  const auto folder = std::filesystem::path(testing::TempDir()) /
                      ("sinew_write_file_" + std::to_string(::getpid()));
  const auto file = folder / "deep" / "curve.csv";
  write_file(file, "a longer first content\n");
  write_file(file, "second\n");
  std::ifstream in(file);
  const std::string content((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_EQ(content, "second\n");
  std::filesystem::remove_all(folder);
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
  const auto folder = std::filesystem::path(testing::TempDir()) /
                      ("sinew_replace_file_" + std::to_string(::getpid()));
  for (const char* content : {"first", "second"}) {
    replace_file(folder / "latest", content);
    EXPECT_EQ(read_file(folder / "latest"), content);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
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
