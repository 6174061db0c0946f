#include "sinew/rpc/membership/file_rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "sinew/tests/rpc/rendezvous_folder.h"

namespace sinew::internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const JobInstance kNone;
const JobInstance kOlder{0, 5, 9};
const JobInstance kNewer{0, 6, 1};

class FileRendezvousTest : public RendezvousFolderTest {
 protected:
  static std::vector<std::string> names(const FileRendezvous& file) {
    std::vector<std::string> all;
    const auto contents = file.read();
    EXPECT_TRUE(contents.ok()) << contents.status();
    if (contents.ok()) {
      for (const Member& entry : contents->entries) all.push_back(entry.worker.name);
    }
    return all;
  }
  std::string text() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
};

TEST_F(FileRendezvousTest, PublishesInOrderAndLastLeaverRemovesTheFile) {
  const FileRendezvous file(path_, "job 1");
  EXPECT_TRUE(names(file).empty());
  ASSERT_TRUE(file.publish(member("a", 0), kNone).ok());
  ASSERT_TRUE(file.publish(member("b", 1), kNone).ok());
  EXPECT_THAT(names(file), ElementsAre("a", "b"));
  EXPECT_EQ(file.read()->entries[1], member("b", 1));
  ASSERT_TRUE(file.publish(member("a", 0, 2), kNone).ok());
  EXPECT_THAT(names(file), ElementsAre("b", "a")) << "newest last, once a name";
  ASSERT_TRUE(file.remove(member("a", 0, 1).worker).ok());
  EXPECT_EQ(names(file).size(), 2u) << "another incarnation";
  ASSERT_TRUE(file.remove(member("a", 0, 2).worker).ok());
  ASSERT_TRUE(file.remove(member("b", 1).worker).ok());
  ASSERT_TRUE(file.remove(member("b", 1).worker).ok());
  struct stat about;
  EXPECT_NE(::stat(path_.c_str(), &about), 0);
  EXPECT_NE(::stat(lock_path().c_str(), &about), 0);
}

TEST_F(FileRendezvousTest, JobsShareAFile) {
  const FileRendezvous one(path_, "one");
  const FileRendezvous two(path_, "");
  ASSERT_TRUE(one.found(member("a", 0), {}, kOlder).ok());
  ASSERT_TRUE(two.found(member("a", 0, 7), {}, kNewer).ok());
  EXPECT_EQ(one.read()->entries[0].worker.incarnation.value, 1u);
  EXPECT_EQ(two.read()->entries[0].worker.incarnation.value, 7u);
  EXPECT_TRUE(one.read()->instance == kOlder);
  EXPECT_TRUE(two.read()->instance == kNewer);
  ASSERT_TRUE(one.remove(member("a", 0).worker).ok());
  EXPECT_EQ(names(two).size(), 1u);
}

TEST_F(FileRendezvousTest, HostileLinesAreNamedAndIgnored) {
  const FileRendezvous file(path_, "j");
  ASSERT_TRUE(file.publish(member("a", 0), kNone).ok());
  std::ofstream(path_, std::ios::app) << "garbage\n"
                                      << "sinew2 j b* 1 0000000000000001 h:1 0-0-0\n"
                                      << "sinew2 j b -1 0000000000000001 h:1 0-0-0\n"
                                      << "sinew2 j b 1 0 h:1 0-0-0\n"
                                      << "sinew2 j b 1 xyz h:1 0-0-0\n"
                                      << "sinew2 j b 1 1 h\\001:1 0-0-0\n"
                                      << "sinew2 j b 99999999999 1 h:1 0-0-0\n"
                                      << "sinew2 j b 1 1 h:1 0-0\n"
                                      << "sinew2 j b 1 1 h:1 0-0-0 more\n"
                                      << "sinew2 j b 1 1 h:1\n"
                                      << std::string(100000, 'A') << "\n"
                                      << std::string("\0\xff\x01", 3) << "\n";
  const auto contents = file.read();
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->entries.size(), 1u);
  ASSERT_EQ(contents->warnings.size(), 12u);
  EXPECT_THAT(contents->warnings[0], HasSubstr("line 2 of the rendezvous file"));
  EXPECT_THAT(contents->warnings[7], HasSubstr("'0-0' is no instance"));
  ASSERT_TRUE(file.remove(member("a", 0).worker).ok());
}

TEST_F(FileRendezvousTest, LinesOfOtherVersionsAreIgnoredWithAWarning) {
  std::ofstream(path_) << "sinew1 j old 0 0000000000000001 h:1\n"
                       << "sinew1 j old 0 0000000000000001 h:1 0-5-9\n"
                       << "sinew3 j old 0 0000000000000001 h:1 0-5-9\n";
  ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  const FileRendezvous file(path_, "j");
  const auto contents = file.read();
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_THAT(contents->entries, IsEmpty());
  EXPECT_FALSE(contents->instance.valid());
  ASSERT_EQ(contents->warnings.size(), 3u);
  for (const std::string& warning : contents->warnings) EXPECT_THAT(warning, HasSubstr("'sinew2'"));
  EXPECT_TRUE(file.found(member("a", 0), *contents, kOlder).ok()) << "they are in nobody's way";
}

TEST_F(FileRendezvousTest, OneFounderWins) {
  const FileRendezvous file(path_, "j");
  std::atomic<int> founders{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const absl::Status status = file.found(member("w" + std::to_string(i), i), {}, kOlder);
      if (status.ok()) ++founders;
      EXPECT_TRUE(status.ok() || absl::IsAborted(status)) << status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(founders, 1);
  const auto stale = file.read();
  ASSERT_TRUE(file.found(member("fresh", 0), *stale, kOlder).ok()) << "over the dead ones";
  EXPECT_THAT(names(file), ElementsAre("fresh"));
}

TEST_F(FileRendezvousTest, ConcurrentWritersLoseNothing) {
  const FileRendezvous file(path_, "j");
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_TRUE(file.publish(member("w" + std::to_string(i), i), kOlder).ok());
      if (i % 2 == 0) return;
      EXPECT_TRUE(file.remove(member("w" + std::to_string(i), i).worker).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(names(file).size(), 4u);
}

// ---- Instances of the job

TEST_F(FileRendezvousTest, TheInstanceStandsInEachLine) {
  const FileRendezvous file(path_, "j");
  ASSERT_TRUE(file.found(member("a", 0), {}, kOlder).ok());
  ASSERT_TRUE(file.publish(member("b", 1), kOlder).ok());
  EXPECT_EQ(text(),
            "sinew2 j a 0 0000000000000001 host\\040name:0 0-5-9\n"
            "sinew2 j b 1 0000000000000001 host\\040name:1 0-5-9\n");
  EXPECT_TRUE(file.read()->instance == kOlder);
}

TEST_F(FileRendezvousTest, OnlyFoundersReplaceAnInstance) {
  const FileRendezvous file(path_, "j");
  ASSERT_TRUE(file.publish(member("a", 0), kOlder).ok()) << "there are none";
  for (const JobInstance& other : {kNewer, kNone}) {
    for (const Member& each : {member("b", 1), member("a", 0, 2)}) {
      const absl::Status refused = file.publish(each, other);
      EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(refused.message()),
                  AllOf(HasSubstr(path_), HasSubstr("0-5-9"), HasSubstr(to_string(other))));
    }
  }
  EXPECT_THAT(names(file), ElementsAre("a"));
  ASSERT_TRUE(file.found(member("b", 1), *file.read(), kNewer).ok());
  EXPECT_THAT(names(file), ElementsAre("b"));
  EXPECT_TRUE(file.read()->instance == kNewer);
  EXPECT_EQ(file.publish(member("a", 0), kOlder).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(file.publish(member("a", 0), kNewer).ok());
}

TEST_F(FileRendezvousTest, AFounderSeesThatOnlyTheInstanceHasChanged) {
  const FileRendezvous file(path_, "j");
  ASSERT_TRUE(file.found(member("a", 0), {}, kOlder).ok());
  const auto before = file.read();
  ASSERT_TRUE(file.found(member("a", 0), *before, kNewer).ok());
  EXPECT_EQ(file.found(member("b", 1), *before, kNewer).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(names(file), ElementsAre("a"));
}

TEST_F(FileRendezvousTest, OfSeveralInstancesTheHighestCounts) {
  std::ofstream(path_) << "sinew2 j a 0 1 h:1 0-5-9\n"
                       << "sinew2 j b 1 2 h:2 0-6-1\n"
                       << "sinew2 j c 2 3 h:3 0-5-a\n"
                       << "sinew2 k d 3 4 h:4 9-0-0\n";
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  const FileRendezvous file(path_, "j");
  EXPECT_TRUE(file.read()->instance == kNewer);
  EXPECT_EQ(file.publish(member("e", 4), kNewer).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(file.remove({"b", 1, {2}}).ok());
  EXPECT_TRUE(file.read()->instance == (JobInstance{0, 5, 10})) << "each line keeps its own";
}

// ---- The lock

/// Does what the test says at each pause.
class ScriptedWait final : public LockWait {
 public:
  using Step = std::function<Then()>;
  explicit ScriptedWait(std::vector<Step> steps) : steps_(std::move(steps)) {}
  Then pause(std::chrono::steady_clock::time_point /*since*/) override {
    EXPECT_LT(pauses_, steps_.size());
    return pauses_ < steps_.size() ? steps_[pauses_++]() : Then::kGiveUp;
  }
  std::size_t pauses() const { return pauses_; }

 private:
  const std::vector<Step> steps_;
  std::size_t pauses_ = 0;
};

TEST_F(FileRendezvousTest, TriesAgainUntilTheLockIsFree) {
  FileDescriptor held = hold_lock(lock_path());
  ScriptedWait wait({[] { return LockWait::Then::kTryAgain; },
                     [&] {
                       held = FileDescriptor();
                       return LockWait::Then::kTryAgain;
                     }});
  const FileRendezvous file(path_, "j", wait);
  EXPECT_TRUE(file.publish(member("a", 0), kNone).ok());
  EXPECT_EQ(wait.pauses(), 2u);
  EXPECT_THAT(names(file), ElementsAre("a"));
}

TEST_F(FileRendezvousTest, DoesNotWaitForALockThatHasLostItsName) {
  const FileDescriptor held = hold_lock(lock_path());
  ScriptedWait wait({[&] {
    ::unlink(lock_path().c_str());
    return LockWait::Then::kTryAgain;
  }});
  EXPECT_TRUE(FileRendezvous(path_, "j", wait).publish(member("a", 0), kNone).ok());
}

TEST_F(FileRendezvousTest, WaitsForTheLockAsItIsTold) {
  const FileDescriptor held = hold_lock(lock_path());
  ScriptedWait wait({[] { return LockWait::Then::kGiveUp; }, [] { return LockWait::Then::kCancel; },
                     [] { return LockWait::Then::kCancel; }});
  const FileRendezvous file(path_, "j", wait);
  const absl::Status overdue = file.publish(member("a", 0), kNone);
  EXPECT_EQ(overdue.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(overdue.message()), HasSubstr("find out who holds it: " + lock_path()));
  EXPECT_EQ(file.found(member("a", 0), {}, kOlder).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(file.remove(member("a", 0).worker).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(file.read().ok()) << "needs no lock";
  EXPECT_EQ(wait.pauses(), 3u);
  EXPECT_NE(::access(path_.c_str(), F_OK), 0) << "nothing was written";
}

// ---- What is at the path

TEST_F(FileRendezvousTest, BadPathsAreNamed) {
  EXPECT_EQ(FileRendezvous("relative", "j").read().status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FileRendezvous(folder_ + "/", "j").read().status().code(),
            absl::StatusCode::kInvalidArgument);
  const FileRendezvous nowhere(folder_ + "/no/file", "j");
  EXPECT_THAT(names(nowhere), IsEmpty());
  const absl::Status missing = nowhere.publish(member("a", 0), kNone);
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/no/file"));
  EXPECT_EQ(FileRendezvous(folder_, "j").read().status().code(),
            absl::StatusCode::kInvalidArgument);
}

/// The file itself, and its lock.
class GuardedFileTest : public FileRendezvousTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    FileRendezvousTest::SetUp();
    guarded_ = GetParam() ? lock_path() : path_;
    aside_ = folder_ + "/aside";
  }
  void TearDown() override {
    ::unlink(aside_.c_str());
    FileRendezvousTest::TearDown();
  }
  void put(const std::string& path, mode_t mode) const {
    std::ofstream(path) << (GetParam() ? "" : "sinew2 j a 0 0000000000000001 h:1 0-0-0\n");
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }
  /// All that would use what is there fail with that.
  void expect_refused(absl::StatusCode code, const std::string& why) const {
    const FileRendezvous file(path_, "j");
    std::vector<absl::Status> all = {file.publish(member("b", 1), kNone),
                                     file.found(member("b", 1), {}, kNone),
                                     file.remove(member("a", 0).worker)};
    if (!GetParam()) all.push_back(file.read().status());
    for (const absl::Status& status : all) {
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("'" + guarded_ + "'"), HasSubstr(why)));
    }
  }
  std::string guarded_;
  std::string aside_;
};

INSTANTIATE_TEST_SUITE_P(Paths, GuardedFileTest, ::testing::Values(false, true),
                         [](const auto& path) { return path.param ? "Lock" : "File"; });

TEST_P(GuardedFileTest, OneOfOursIsTaken) {
  for (const mode_t mode : {0600, 0644}) {
    put(guarded_, mode);
    const absl::Status status = FileRendezvous(path_, "j").publish(member("b", 1), kNone);
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_P(GuardedFileTest, ALinkIsNotFollowed) {
  put(aside_, 0600);
  ASSERT_EQ(::symlink(aside_.c_str(), guarded_.c_str()), 0);
  expect_refused(absl::StatusCode::kInvalidArgument, "is no regular file but a symbolic link");
  EXPECT_EQ(::access((aside_ + ".new").c_str(), F_OK), -1);
}

TEST_P(GuardedFileTest, ALinkToNothingMakesNothing) {
  ASSERT_EQ(::symlink(aside_.c_str(), guarded_.c_str()), 0);
  expect_refused(absl::StatusCode::kInvalidArgument, "is no regular file but a symbolic link");
  EXPECT_NE(::access(aside_.c_str(), F_OK), 0);
}

TEST_P(GuardedFileTest, AFifoIsNotWaitedFor) {
  ASSERT_EQ(::mkfifo(guarded_.c_str(), 0600), 0);
  expect_refused(absl::StatusCode::kInvalidArgument, "is no regular file but a FIFO");
}

TEST_P(GuardedFileTest, ASocketIsNamedAsOne) {
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(guarded_.size(), sizeof(address.sun_path));
  std::strcpy(address.sun_path, guarded_.c_str());
  ASSERT_EQ(::bind(socket.number(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  expect_refused(absl::StatusCode::kInvalidArgument, "is no regular file but a socket");
}

TEST_P(GuardedFileTest, ADeviceIsRefused) {
  if (::mknod(guarded_.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) {
    GTEST_SKIP() << "this user may make no device: " << std::strerror(errno);
  }
  expect_refused(absl::StatusCode::kInvalidArgument, "a device");
}

TEST_P(GuardedFileTest, AFolderIsRefused) {
  ASSERT_EQ(::mkdir(guarded_.c_str(), 0700), 0);
  expect_refused(absl::StatusCode::kInvalidArgument, "is no regular file but a folder");
  ASSERT_EQ(::rmdir(guarded_.c_str()), 0);
}

TEST_P(GuardedFileTest, OneThatOthersMayWriteIsRefused) {
  for (const mode_t mode : {0620, 0602, 0666}) {
    put(guarded_, mode);
    expect_refused(absl::StatusCode::kPermissionDenied, absl::StrFormat("mode %04o", mode));
    expect_refused(absl::StatusCode::kPermissionDenied, "chmod go-w");
  }
}

TEST_P(GuardedFileTest, OneOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to somebody else";
  put(guarded_, 0600);
  ASSERT_EQ(::chown(guarded_.c_str(), 12345, 12345), 0);
  expect_refused(absl::StatusCode::kPermissionDenied,
                 "belongs to user 12345, and this process runs as user 0");
}

TEST_P(GuardedFileTest, OneThatMayNotEvenBeOpenedIsNamedAsAnothersToo) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
  put(guarded_, 0600);
  ASSERT_EQ(::chown(guarded_.c_str(), 12345, 12345), 0);
  const std::string text = in_child([&]() -> std::string {
    if (::setresuid(12346, 12346, 12346) != 0) return "cannot become another user";
    return FileRendezvous(path_, "j").publish(member("b", 1), kNone).ToString();
  });
  EXPECT_THAT(text, AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr("'" + guarded_ + "'"),
                          HasSubstr("belongs to user 12345")));
}

TEST_F(FileRendezvousTest, AFileOfRootIsTaken) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  ASSERT_TRUE(FileRendezvous(path_, "j").publish(member("a", 0), kNone).ok());
  ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  const std::string text = in_child([&]() -> std::string {
    if (::setresuid(12346, 12346, 12346) != 0) return "cannot become another user";
    const auto contents = FileRendezvous(path_, "j").read();
    return contents.ok() ? contents->entries.at(0).worker.name : contents.status().ToString();
  });
  EXPECT_EQ(text, "a");
}

TEST_F(FileRendezvousTest, TheTemporaryIsMadeAnew) {
  const std::string aside = folder_ + "/aside";
  std::ofstream(aside) << "precious";
  ASSERT_EQ(::symlink(aside.c_str(), (path_ + ".new").c_str()), 0);
  const FileRendezvous file(path_, "j");
  EXPECT_TRUE(file.publish(member("a", 0), kNone).ok());
  std::string precious;
  std::ifstream(aside) >> precious;
  EXPECT_EQ(precious, "precious");
  struct stat about;
  ASSERT_EQ(::lstat(path_.c_str(), &about), 0);
  EXPECT_TRUE(S_ISREG(about.st_mode));
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  ::unlink(aside.c_str());

  ASSERT_EQ(::mkdir((path_ + ".new").c_str(), 0700), 0);
  const absl::Status blocked = file.publish(member("b", 1), kNone);
  EXPECT_EQ(blocked.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(blocked.message()), HasSubstr(".new' is no regular file but a folder"));
  EXPECT_THAT(names(file), ElementsAre("a"));
  ::rmdir((path_ + ".new").c_str());
}

TEST_F(FileRendezvousTest, AFolderOfAGroupIsTakenAndOneOfEverybodyOnlyIfSticky) {
  const FileRendezvous file(path_, "j");
  for (const mode_t mode : {0700, 0755, 0775, 02770, 01777}) {
    ASSERT_EQ(::chmod(folder_.c_str(), mode), 0);
    const absl::Status status = file.publish(member("a", 0), kNone);
    EXPECT_TRUE(status.ok()) << mode << ": " << status;
  }
  for (const mode_t mode : {0777, 0707, 02777}) {
    ASSERT_EQ(::chmod(folder_.c_str(), mode), 0);
    for (const absl::Status& status :
         {file.read().status(), file.publish(member("a", 0), kNone),
          file.found(member("a", 0), {}, kNone), file.remove(member("a", 0).worker)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(folder_), HasSubstr("chmod +t")));
    }
  }
}

TEST_F(FileRendezvousTest, AFolderMayBeReachedByALink) {
  const std::string link = folder_ + "-link";
  ASSERT_EQ(::symlink(folder_.c_str(), link.c_str()), 0);
  EXPECT_TRUE(FileRendezvous(link + "/job file", "j").publish(member("a", 0), kNone).ok());
  EXPECT_THAT(names(FileRendezvous(path_, "j")), ElementsAre("a"));
  ::unlink(link.c_str());
}

}  // namespace
}  // namespace sinew::internal
