#include "sinew/rpc/base/process_room.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {
namespace {

TEST(ProcessRoomTest, ThereIsSome) {
  EXPECT_TRUE(check_room_for_threads(4).ok());
  EXPECT_TRUE(check_room_for_files(4).ok());
}

/// What `body` returns as a user whose processes may have `most` threads together, this one
/// counted.
std::string with_threads(int most, const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const auto user = static_cast<uid_t>(1000000 + ::getpid());
    const rlimit limits{static_cast<rlim_t>(most), static_cast<rlim_t>(most)};
    std::string text = "cannot become another user";
    if (::setrlimit(RLIMIT_NPROC, &limits) == 0 && ::setresuid(user, user, user) == 0) {
      text = body();
    }
    ::_exit(::write(ends[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  char bytes[4096];
  const ssize_t size = ::read(ends[0], bytes, sizeof bytes);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return std::string(bytes, size < 0 ? 0 : static_cast<std::size_t>(size));
}

class LimitedThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become a user without other processes";
  }
};

TEST_F(LimitedThreads, TooFewAreAnErrorThatSaysHowManyThereAre) {
  const std::string text =
      with_threads(5, [] { return std::string(check_room_for_threads(16).message()); });
  EXPECT_EQ(text,
            "a worker needs 16 more threads, and the system starts only 4: RLIMIT_NPROC (ulimit "
            "-u), for all processes of the user together, is 5; pids.max of the control group may "
            "be lower, and memory short");
  EXPECT_EQ(with_threads(5, [] { return check_room_for_threads(4).ToString(); }), "OK");
}

std::string code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const RpcError& error) {
    return absl::StatusCodeToString(error.code());
  }
  return "OK";
}

TEST(LimitedFiles, TooFewAreAnErrorThatSaysHowManyThereAre) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(STDERR_FILENO);
  ::close(next);
  const rlimit limits{static_cast<rlim_t>(next) + 3, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limits), 0);
  const absl::Status enough = check_room_for_files(3);
  const absl::Status too_few = check_room_for_files(12);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(enough.ok()) << enough;
  EXPECT_EQ(too_few.message(),
            absl::StrCat("a worker needs 12 more file descriptors, and the process gets only 3: "
                         "RLIMIT_NOFILE (ulimit -n) is ",
                         next + 3));
}

TEST_F(LimitedThreads, TimersAndExecutorsFailToStart) {
  EXPECT_EQ(with_threads(1, [] { return code_of([] { TimerQueue timers; }); }),
            "RESOURCE_EXHAUSTED");
  const auto start = [] {
    return code_of([] {
      Executor::Options options;
      options.min_threads = 2;
      Executor executor(options);
    });
  };
  EXPECT_EQ(with_threads(2, start), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(with_threads(3, start), "OK");
}

}  // namespace
}  // namespace sinew::internal
