#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/membership/file_rendezvous.h"

namespace sinew::internal {

/// A folder of its own for the rendezvous file of each test.
class RendezvousFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "sinew-rendezvous-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/job file";
  }
  void TearDown() override {
    ::unlink(path_.c_str());
    ::unlink(lock_path().c_str());
    EXPECT_EQ(::rmdir(folder_.c_str()), 0) << "something was left in " << folder_;
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string lock_path() const { return path_ + ".lock"; }

  static Member member(const std::string& name, int rank, std::uint64_t incarnation = 1) {
    return {{name, rank, {incarnation}}, "host name:" + std::to_string(rank), 0};
  }

  std::string folder_;
  std::string path_;
};

/// Holds the lock file at that path, as another process would, for as long as the descriptor lives.
inline FileDescriptor hold_lock(const std::string& lock_path) {
  FileDescriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_EQ(::flock(lock.number(), LOCK_EX | LOCK_NB), 0);
  return lock;
}

/// Runs `body` in a forked child, and returns what it does.
inline std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    const std::string text = body();
    ::_exit(::write(ends[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t size = 0; (size = ::read(ends[0], bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<std::size_t>(size));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? text : "ended by signal " + std::to_string(WTERMSIG(status));
}

}  // namespace sinew::internal
