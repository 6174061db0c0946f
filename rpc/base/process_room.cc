#include "sinew/rpc/base/process_room.h"

#include <sys/eventfd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/host_limits.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {
namespace {

std::string limit_text(std::optional<std::uint64_t> limit) {
  return limit.has_value() ? absl::StrCat(*limit) : "unlimited";
}

std::string only(std::size_t got) { return got == 0 ? "none" : absl::StrCat("only ", got); }

std::string group_text(const std::optional<HostLimits::Threads>& threads) {
  if (!threads.has_value()) return "pids.max of the control group may be lower, and memory short";
  return absl::StrCat("pids.max of the control group ", threads->group, " is ", threads->most,
                      ", and ", threads->used, " are in use; memory may be short");
}

absl::Status too_few(std::size_t wanted, std::size_t got) {
  const HostLimits limits = read_host_limits();
  return absl::ResourceExhaustedError(
      absl::StrCat("a worker needs ", wanted, wanted == 1 ? " more thread" : " more threads",
                   ", and the system starts ", only(got),
                   ": RLIMIT_NPROC (ulimit -u), for all processes of the user together, is ",
                   limit_text(limits.user_threads), "; ", group_text(limits.threads)));
}

}  // namespace

absl::Status check_room_for_threads(std::size_t count) {
  Mutex mutex;
  CondVar changed;
  bool done = false;
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    while (threads.size() < count) {
      threads.emplace_back([&] {
        MutexLock lock(mutex);
        while (!done) changed.wait(mutex);
      });
    }
  } catch (const std::system_error&) {  // Those that there are tell.
  }
  {
    MutexLock lock(mutex);
    done = true;
    changed.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
  return threads.size() == count ? absl::OkStatus() : too_few(count, threads.size());
}

absl::Status check_room_for_files(std::size_t count) {
  std::vector<FileDescriptor> files;
  files.reserve(count);
  while (files.size() < count) {
    FileDescriptor file(::eventfd(0, EFD_CLOEXEC));
    if (!file.valid()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a worker needs ", count, " more file descriptors, and the process gets ",
          only(files.size()), ": RLIMIT_NOFILE (ulimit -n) is ", limit_text(file_limit())));
    }
    files.push_back(std::move(file));
  }
  return absl::OkStatus();
}

absl::Status no_thread_started() { return too_few(1, 0); }

std::thread start_thread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error&) {
    throw_error(no_thread_started());
  }
}

}  // namespace sinew::internal
