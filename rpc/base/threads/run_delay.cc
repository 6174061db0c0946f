#include "sinew/rpc/base/threads/run_delay.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace sinew::internal {
namespace {

using std::chrono::nanoseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kReadInterval = std::chrono::milliseconds(10);

struct Reading {
  SteadyClock::time_point at = SteadyClock::time_point::min();
  std::optional<nanoseconds> delay;
};

// The file is not kept open: any thread that waits may ask, and descriptors are for connections.
std::optional<nanoseconds> delay_of_this_thread() {
  const int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::array<char, 96> text{};
  const ssize_t size = read(file, text.data(), text.size());
  close(file);
  if (size <= 0) return std::nullopt;
  // Time on a core, time of waiting for one, and how often it got one.
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text.data(), static_cast<std::size_t>(size)), ' ');
  std::int64_t delay = 0;
  if (fields.size() < 3 || !absl::SimpleAtoi(fields[1], &delay)) return std::nullopt;
  return nanoseconds(delay);
}

}  // namespace

std::optional<RunDelay> new_run_delay(SteadyClock::time_point now) {
  thread_local Reading last;
  if (last.at != SteadyClock::time_point::min() && now - last.at < kReadInterval)
    return std::nullopt;
  const Reading before = last;
  last = {now, delay_of_this_thread()};
  if (!before.delay.has_value() || !last.delay.has_value()) return std::nullopt;
  return RunDelay{*last.delay - *before.delay, now - before.at};
}

}  // namespace sinew::internal
