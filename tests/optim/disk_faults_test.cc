// Disks that do not keep what they were given, and links that are there when a file is made: what
// no test can bring about from outside, since names of unfinished files are drawn. So functions of
// the C library are replaced in this program.

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sinew/optim/internal/checkpoint_folder.h"
#include "sinew/optim/internal/durable_file.h"
#include "sinew/rpc/base/error.h"
#include "sinew/testing/error_of.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

namespace {

/// What will happen, once.
struct Mischief {
  /// The next file that is flushed gets another first byte.
  bool damages = false;
  /// Where the unfinished file that is made next is a link to; empty: there is none.
  std::string link_to;
};

Mischief& mischief() {
  static Mischief one;
  return one;
}

bool is_unfinished(std::string_view path) {
  const std::string_view ending = sinew::internal::DurableFile::kUnfinished;
  return path.size() > ending.size() && path.substr(path.size() - ending.size()) == ending;
}

}  // namespace

extern "C" int fsync(int file) {
  if (std::exchange(mischief().damages, false)) {
    EXPECT_EQ(::pwrite(file, "?", 1, 0), 1);
  }
  return static_cast<int>(::syscall(SYS_fsync, file));
}

extern "C" int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  if ((flags & O_CREAT) != 0 && !mischief().link_to.empty() && is_unfinished(path)) {
    std::filesystem::create_symlink(std::exchange(mischief().link_to, {}), path);
  }
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

namespace {

namespace fs = std::filesystem;
using sinew::ErrorCode;
using sinew::internal::CheckpointFolder;
using sinew::internal::CheckpointManifest;
using sinew::internal::DurableFile;
using sinew::testing::error_of;
using sinew::testing::files_in;
using sinew::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(DiskFaults, WhatADiskHasNotKeptIsNoCheckpoint) {
  const TemporaryFolder root;
  const CheckpointFolder folder(root.file(""), "run", "a");
  CheckpointManifest manifest;
  manifest.number = 1;
  folder.write(manifest, "bytes");
  manifest.number = 2;
  mischief().damages = true;
  const sinew::RpcError error = error_of([&] { folder.write(manifest, "others"); });
  EXPECT_FALSE(mischief().damages) << "the file was not flushed by what is replaced here";
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(error.message(), HasSubstr("does not have what was written to it"));
  EXPECT_THAT(files_in(root.file("run")), UnorderedElementsAre("a.000001.pt", "a.000001.manifest"));
  EXPECT_NO_THROW(folder.check_data(folder.read_manifest(1)));
  folder.write(manifest, "others");
  EXPECT_NO_THROW(folder.check_data(folder.read_manifest(2)));
}

TEST(DiskFaults, NothingIsWrittenThroughALinkThatIsInTheWay) {
  const TemporaryFolder root;
  const std::string outside = root.file("outside");
  std::ofstream(outside) << "untouched";
  // Also where that would be a new file.
  for (const std::string& target : {outside, root.file("nothing")}) {
    mischief().link_to = target;
    EXPECT_EQ(error_of([&] { DurableFile(root.file("file"), "bytes"); }).code(),
              ErrorCode::kAlreadyExists);
    EXPECT_EQ(mischief().link_to, "") << "the file was not made by what is replaced here";
  }
  EXPECT_EQ(text_of(outside), "untouched");
  EXPECT_THAT(files_in(root.file("")), UnorderedElementsAre("outside"));
}

}  // namespace
