#include "sinew/rpc/planes/same_host/copy_team.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr auto kLong = std::chrono::seconds(60);

using Pieces = std::vector<std::pair<std::size_t, std::size_t>>;

// Whether the pieces are the whole, each byte once.
bool cover(Pieces pieces, std::size_t size_bytes) {
  std::sort(pieces.begin(), pieces.end());
  std::size_t end = 0;
  for (const auto& [offset, size] : pieces) {
    if (offset != end || size == 0) return false;
    end += size;
  }
  return end == size_bytes;
}

TEST(CopyTeam, EachByteIsCopiedOnce) {
  for (const std::size_t helpers : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    CopyTeam team(helpers);
    for (const std::size_t size_bytes :
         {std::size_t{1}, kMiB, 8 * kMiB - 1, 8 * kMiB, 8 * kMiB + 1, 100 * kMiB + 12345}) {
      std::mutex mutex;
      Pieces pieces;
      const absl::Status status = team.copy(size_bytes, [&](std::size_t offset, std::size_t size) {
        const std::lock_guard lock(mutex);
        pieces.emplace_back(offset, size);
        return absl::OkStatus();
      });
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_TRUE(cover(pieces, size_bytes)) << size_bytes << " bytes, " << helpers << " helpers";
    }
  }
}

TEST(CopyTeam, SmallCopiesAreTheCallersAloneAndInOnePiece) {
  CopyTeam team(3);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> by_others{0};
  std::atomic<int> calls{0};
  const absl::Status status = team.copy(4 * kMiB, [&](std::size_t, std::size_t) {
    if (std::this_thread::get_id() != caller) ++by_others;
    ++calls;
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(by_others, 0);
  EXPECT_EQ(calls, 1);
}

TEST(CopyTeam, HelpersCopyAtTheSameTime) {
  CopyTeam team(2);
  std::mutex mutex;
  std::condition_variable came;
  std::vector<std::thread::id> threads;
  const absl::Status status = team.copy(64 * kMiB, [&](std::size_t, std::size_t) {
    std::unique_lock lock(mutex);
    threads.push_back(std::this_thread::get_id());
    came.notify_all();
    // Nobody ends his first piece before all three have begun one.
    const bool all = came.wait_for(lock, kLong, [&] { return threads.size() >= 3; });
    return all ? absl::OkStatus() : absl::DeadlineExceededError("the helpers did not come");
  });
  EXPECT_TRUE(status.ok()) << status;
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  EXPECT_EQ(threads.size(), 3U);
}

TEST(CopyTeam, AFailureEndsTheCopy) {
  CopyTeam team(1);
  std::atomic<int> calls{0};
  const absl::Status status = team.copy(1024 * kMiB, [&](std::size_t, std::size_t) {
    ++calls;
    return absl::UnavailableError("gone");
  });
  EXPECT_EQ(status, absl::UnavailableError("gone"));
  EXPECT_LE(calls, 2);
}

TEST(CopyTeam, NoCallRunsAfterTheReturn) {
  CopyTeam team(1);
  const std::thread::id caller = std::this_thread::get_id();
  std::promise<void> helper_is_in;
  std::atomic<bool> told{false};
  std::atomic<int> running{0};
  // The caller fails as soon as the helper is at work; it must wait for that one all the same.
  const absl::Status status = team.copy(64 * kMiB, [&](std::size_t, std::size_t) {
    ++running;
    if (std::this_thread::get_id() != caller) {
      if (!told.exchange(true)) helper_is_in.set_value();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      --running;
      return absl::OkStatus();
    }
    const bool came = helper_is_in.get_future().wait_for(kLong) == std::future_status::ready;
    --running;
    return came ? absl::UnavailableError("enough") : absl::DeadlineExceededError("no helper came");
  });
  EXPECT_EQ(running, 0);
  EXPECT_EQ(status, absl::UnavailableError("enough"));
}

TEST(CopyTeam, ManyCopiesAtOnce) {
  CopyTeam team(2);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&team, &failures] {
      for (int round = 0; round < 20; ++round) {
        const std::vector<char> from(9 * kMiB, static_cast<char>(round));
        std::vector<char> to(from.size());
        const absl::Status status =
            team.copy(from.size(), [&](std::size_t offset, std::size_t size) {
              std::copy_n(from.data() + offset, size, to.data() + offset);
              return absl::OkStatus();
            });
        if (!status.ok() || from != to) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace sinew::internal
