#include "sinew/rpc/membership/file_rendezvous_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/tests/rpc/rendezvous_folder.h"
#include "sinew/tests/support/eventual_value.h"

namespace sinew::internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const JobInstance kInstance{0, 5, 9};
const JobInstance kOther{0, 6, 1};

/// What callbacks have got, in the order in which they ran.
class Results {
 public:
  FileRendezvousThread::OnDone done(const std::string& what) {
    return [this, what](const absl::Status& status) {
      add(absl::StrCat(what, " ", status.ok() ? "OK" : absl::StatusCodeToString(status.code())),
          std::string(status.message()));
    };
  }
  FileRendezvousThread::OnRead read() {
    return [this](const absl::StatusOr<FileRendezvous::Contents>& contents) {
      std::string text = "read";
      if (!contents.ok())
        absl::StrAppend(&text, " ", absl::StatusCodeToString(contents.status().code()));
      if (contents.ok()) {
        for (const Member& each : contents->entries) absl::StrAppend(&text, " ", each.worker.name);
        absl::StrAppend(&text, " ", to_string(contents->instance));
      }
      add(text, std::string(contents.status().message()));
    };
  }
  std::vector<std::string> all() const {
    MutexLock lock(mutex_);
    return all_;
  }
  std::string last_message() const {
    MutexLock lock(mutex_);
    return message_;
  }
  /// Each thread that ran a callback.
  std::vector<std::string> threads() const {
    MutexLock lock(mutex_);
    return threads_;
  }
  bool wait_for(std::size_t count) const {
    return testing::eventually([&] { return all().size() >= count; });
  }

 private:
  void add(std::string text, std::string message) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    MutexLock lock(mutex_);
    all_.push_back(std::move(text));
    message_ = std::move(message);
    if (threads_.empty() || threads_.back() != name) threads_.emplace_back(name);
  }

  mutable Mutex mutex_;
  std::vector<std::string> all_ ABSL_GUARDED_BY(mutex_);
  std::string message_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> threads_ ABSL_GUARDED_BY(mutex_);
};

class FileRendezvousThreadTest : public RendezvousFolderTest {
 protected:
  /// Ends no wait by itself while a test runs.
  static FileRendezvousThread::Options patient() {
    FileRendezvousThread::Options options;
    options.lock_timeout = std::chrono::hours(1);
    return options;
  }
  static bool has_begun(const FileRendezvousThread& file) {
    return testing::eventually([&] { return file.waiting() == 0; });
  }
  /// False if it waits for the lock, which is let go then.
  static bool closes(FileRendezvousThread& file, FileDescriptor& held) {
    std::atomic<bool> closed{false};
    std::thread closing([&] {
      file.close();
      closed = true;
    });
    const bool in_time = testing::eventually([&] { return closed.load(); });
    // Otherwise it waits for an hour.
    if (!in_time) held = FileDescriptor();
    closing.join();
    return in_time;
  }
  Results results_;
};

TEST_F(FileRendezvousThreadTest, RunsOperationsInOrderOnOneThreadOfItsOwn) {
  std::atomic<int> threads{0};
  FileRendezvousThread::Options options;
  options.start_thread = [&](std::function<void()> body) {
    ++threads;
    return std::thread(std::move(body));
  };
  FileRendezvousThread file(path_, "j", options);
  EXPECT_EQ(file.path(), path_);
  EXPECT_EQ(threads, 0) << "nothing was to be done";
  file.found(member("a", 0), {}, kInstance, results_.done("found"));
  file.read(results_.read());
  file.publish(member("b", 1), kInstance, results_.done("publish"));
  file.publish(member("c", 2), kOther, results_.done("publish other"));
  file.read(results_.read());
  file.remove(member("a", 0).worker, results_.done("remove"));
  file.found(member("d", 0), {}, kOther, results_.done("found"));
  file.read(results_.read());
  ASSERT_TRUE(results_.wait_for(8));
  EXPECT_THAT(results_.all(), ElementsAre("found OK", "read a 0-5-9", "publish OK",
                                          "publish other FAILED_PRECONDITION", "read a b 0-5-9",
                                          "remove OK", "found ABORTED", "read b 0-5-9"));
  EXPECT_EQ(threads, 1);
  EXPECT_THAT(results_.threads(), ElementsAre("sinew-file"));
}

TEST_F(FileRendezvousThreadTest, HandsErrorsOn) {
  FileRendezvousThread file(folder_ + "/no/job", "j", {});
  file.publish(member("a", 0), kInstance, results_.done("publish"));
  ASSERT_TRUE(results_.wait_for(1));
  EXPECT_THAT(results_.all(), ElementsAre("publish INVALID_ARGUMENT"));
  EXPECT_THAT(results_.last_message(), HasSubstr("/no/job"));
}

TEST_F(FileRendezvousThreadTest, TheThreadWaitsForTheLockAndTheCallerDoesNot) {
  FileDescriptor held = hold_lock(lock_path());
  FileRendezvousThread file(path_, "j", patient());
  file.publish(member("a", 0), kInstance, results_.done("publish"));
  ASSERT_TRUE(has_begun(file));
  file.read(results_.read());
  EXPECT_EQ(file.waiting(), 1u);
  EXPECT_THAT(results_.all(), ElementsAre());
  held = FileDescriptor();
  ASSERT_TRUE(results_.wait_for(2));
  EXPECT_THAT(results_.all(), ElementsAre("publish OK", "read a 0-5-9"));
}

TEST_F(FileRendezvousThreadTest, OperationsEndWhenTheLockIsHeldForTooLong) {
  const FileDescriptor held = hold_lock(lock_path());
  FileRendezvousThread::Options options;
  options.lock_timeout = std::chrono::seconds(0);
  FileRendezvousThread file(path_, "j", options);
  file.publish(member("a", 0), kInstance, results_.done("publish"));
  file.remove(member("a", 0).worker, results_.done("remove"));
  ASSERT_TRUE(results_.wait_for(2));
  EXPECT_THAT(results_.last_message(), HasSubstr("find out who holds it: " + lock_path()));
  file.read(results_.read());
  ASSERT_TRUE(results_.wait_for(3));
  EXPECT_THAT(results_.all(),
              ElementsAre("publish UNAVAILABLE", "remove UNAVAILABLE", "read 0-0-0"));
}

TEST_F(FileRendezvousThreadTest, CloseDoesNotWaitForTheLock) {
  FileDescriptor held = hold_lock(lock_path());
  FileRendezvousThread file(path_, "j", patient());
  file.publish(member("a", 0), kInstance, results_.done("publish"));
  ASSERT_TRUE(has_begun(file));
  file.read(results_.read());
  file.remove(member("a", 0).worker, results_.done("remove"));
  EXPECT_EQ(file.waiting(), 2u);
  ASSERT_TRUE(closes(file, held));
  EXPECT_THAT(results_.all(),
              ElementsAre("publish CANCELLED", "read CANCELLED", "remove CANCELLED"));
  EXPECT_THAT(results_.threads(), ElementsAre("sinew-file"));
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);

  file.remove(member("a", 0).worker, results_.done("late"));
  EXPECT_EQ(testing::last_of(results_.all()), "late CANCELLED")
      << "at once: there is no thread any more";
  EXPECT_THAT(results_.last_message(), HasSubstr(path_));
  file.close();
}

TEST_F(FileRendezvousThreadTest, CloseDoesNotWaitForAnotherProcess) {
  int held[2];
  int go_on[2];
  ASSERT_EQ(::pipe(held), 0);
  ASSERT_EQ(::pipe(go_on), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(120);
    const FileDescriptor lock = hold_lock(lock_path());
    char byte = 'x';
    static_cast<void>(::write(held[1], &byte, 1));
    ::close(go_on[1]);
    ::_exit(::read(go_on[0], &byte, 1) < 0 ? 1 : 0);
  }
  FileDescriptor child_waits(go_on[1]);
  char byte = 0;
  ASSERT_EQ(::read(held[0], &byte, 1), 1);
  {
    FileRendezvousThread file(path_, "j", patient());
    file.found(member("a", 0), {}, kInstance, results_.done("found"));
    ASSERT_TRUE(has_begun(file));
    ASSERT_TRUE(closes(file, child_waits));
  }
  EXPECT_THAT(results_.all(), ElementsAre("found CANCELLED"));
  child_waits = FileDescriptor();
  for (const int end : {held[0], held[1], go_on[0]}) ::close(end);
  ::waitpid(child, nullptr, 0);
}

TEST_F(FileRendezvousThreadTest, ACallbackMayLetGoOfIt) {
  const FileDescriptor held = hold_lock(lock_path());
  auto file = std::make_shared<FileRendezvousThread>(path_, "j", patient());
  std::weak_ptr<FileRendezvousThread> gone = file;
  std::atomic<bool> may_go{false};
  FileRendezvousThread& asked = *file;
  asked.read([&, file = std::move(file)](const auto& /*contents*/) mutable {
    testing::eventually([&] { return may_go.load(); });
    file.reset();
  });
  asked.publish(member("a", 0), kInstance, results_.done("publish"));
  may_go = true;
  ASSERT_TRUE(results_.wait_for(1));
  EXPECT_THAT(results_.all(), ElementsAre("publish CANCELLED"));
  EXPECT_TRUE(gone.expired());
}

TEST_F(FileRendezvousThreadTest, WithoutAThreadAnOperationFailsAndTheNextTriesAgain) {
  std::atomic<int> left{1};
  FileRendezvousThread::Options options;
  options.start_thread = [&](std::function<void()> body) {
    if (left-- > 0) throw std::system_error(EAGAIN, std::generic_category());
    return std::thread(std::move(body));
  };
  FileRendezvousThread file(path_, "j", options);
  file.read(results_.read());
  EXPECT_THAT(results_.all(), ElementsAre("read RESOURCE_EXHAUSTED")) << "on this thread";
  EXPECT_THAT(results_.last_message(), StartsWith("a worker needs 1 more thread"));
  file.read(results_.read());
  ASSERT_TRUE(results_.wait_for(2));
  EXPECT_EQ(testing::last_of(results_.all()), "read 0-0-0");
}

TEST_F(FileRendezvousThreadTest, WhatWaitsIsBounded) {
  FileDescriptor held = hold_lock(lock_path());
  FileRendezvousThread::Options options = patient();
  options.max_waiting = 2;
  FileRendezvousThread file(path_, "j", options);
  file.publish(member("a", 0), kInstance, results_.done("first"));
  ASSERT_TRUE(has_begun(file));
  file.publish(member("b", 1), kInstance, results_.done("second"));
  file.publish(member("c", 2), kInstance, results_.done("third"));
  file.publish(member("d", 3), kInstance, results_.done("fourth"));
  EXPECT_THAT(results_.all(), ElementsAre("fourth RESOURCE_EXHAUSTED"));
  EXPECT_THAT(results_.last_message(), AllOf(HasSubstr("2 operations"), HasSubstr(path_)));
  held = FileDescriptor();
  ASSERT_TRUE(results_.wait_for(4));
  EXPECT_THAT(results_.all(),
              ElementsAre("fourth RESOURCE_EXHAUSTED", "first OK", "second OK", "third OK"));
}

}  // namespace
}  // namespace sinew::internal
