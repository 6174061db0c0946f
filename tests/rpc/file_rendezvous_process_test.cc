// A FileRendezvousThread when its process forks, or ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/membership/file_rendezvous_thread.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/rpc/rendezvous_folder.h"

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;

using FileRendezvousProcessTest = RendezvousFolderTest;

TEST_F(FileRendezvousProcessTest, AForkedChildIsToldThatItHasNoThread) {
  ProcessLife::watch();
  FileDescriptor held = hold_lock(lock_path());
  auto file = std::make_unique<FileRendezvousThread>(path_, "j", FileRendezvousThread::Options());
  std::atomic<bool> published{false};
  file->publish(member("a", 0), {}, [&](const absl::Status& status) { published = status.ok(); });
  ASSERT_TRUE(testing::eventually([&] { return file->waiting() == 0; }));
  const std::string text = in_child([&] {
    std::string got = "nothing";
    file->read([&](const absl::StatusOr<FileRendezvous::Contents>& contents) {
      got = contents.status().ToString();
    });
    file.reset();
    return got;
  });
  EXPECT_THAT(text, HasSubstr("FAILED_PRECONDITION"));
  held = FileDescriptor();
  EXPECT_TRUE(testing::eventually([&] { return published.load(); })) << "the parent's goes on";
}

/// Asks again and again.
struct Restless {
  void run() {
    file->read([this](const absl::StatusOr<FileRendezvous::Contents>& /*contents*/) {
      if (destroyed) std::abort();
      ++runs;
      run();
    });
  }
  ~Restless() {
    destroyed = true;
    // Long enough for a callback that still ran to find that.
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  }
  FileRendezvousThread* file = nullptr;
  std::atomic<int> runs{0};
  std::atomic<bool> destroyed{false};
};

[[noreturn]] void exit_while_operations_run(const std::string& path) {
  static Restless restless;
  ProcessLife::watch();
  restless.file = new FileRendezvousThread(path, "j", {});
  restless.run();
  while (restless.runs < 100) std::this_thread::yield();
  std::exit(7);
}

TEST_F(FileRendezvousProcessTest, OperationsStandStillWhileWhatIsStaticIsDestroyed) {
  EXPECT_EXIT(exit_while_operations_run(path_), ::testing::ExitedWithCode(7), "");
}

/// Like a worker that is shut down by the destructor of something static.
struct Owner {
  ~Owner() { file.reset(); }
  std::unique_ptr<FileRendezvousThread> file;
};

[[noreturn]] void exit_while_the_lock_is_held(const std::string& path) {
  static Owner owner;
  ProcessLife::watch();
  FileRendezvousThread::Options options;
  options.lock_timeout = std::chrono::hours(1);
  owner.file = std::make_unique<FileRendezvousThread>(path, "j", options);
  ::alarm(60);
  owner.file->remove({"a", 0, {1}}, [](const absl::Status& status) {
    if (!absl::IsCancelled(status)) std::abort();
  });
  while (owner.file->waiting() > 0) std::this_thread::yield();
  std::exit(7);
}

TEST_F(FileRendezvousProcessTest, AnExitEndsTheWaitForTheLock) {
  const FileDescriptor held = hold_lock(lock_path());
  EXPECT_EXIT(exit_while_the_lock_is_held(path_), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace sinew::internal
