#include "sinew/rpc/worker/thread_plan.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>

#include "ATen/Parallel.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kLeastHandlers = 4;
constexpr std::size_t kThreadsAlone = 4;
// Without gRPC's event engine, which has at once one for each CPU that the machine could have, 2 to
// 32, whatever the process may use.
constexpr std::size_t kThreadsWithGrpc = 14;
constexpr int kLeastEngineThreads = 2;
constexpr int kMostEngineThreads = 32;
// One peer's calls may take that part of what control groups leave.
constexpr std::uint64_t kShareOfMemory = 4;

/// What the process may start besides those that the worker itself needs.
std::size_t spare_threads(const WorkerOptions& options, const HostLimits& limits) {
  const std::uint64_t left =
      limits.threads_left().value_or(std::numeric_limits<std::uint32_t>::max());
  const std::size_t needed = threads_at_start(options);
  return left > needed ? left - needed : 0;
}

}  // namespace

std::size_t threads_at_start(const WorkerOptions& options) {
  if (absl::StartsWith(options.init_method, "inproc:")) return kThreadsAlone;
  // It looks whether certificates have been renewed.
  const std::size_t watcher = options.credentials.uses_tls() ? 1 : 0;
  return kThreadsWithGrpc + watcher +
         static_cast<std::size_t>(
             std::clamp(::get_nprocs_conf(), kLeastEngineThreads, kMostEngineThreads));
}

std::size_t handler_threads(const WorkerOptions& options, const HostLimits& limits) {
  if (options.num_threads != 0) return options.num_threads;
  const std::size_t wanted = std::max(kLeastHandlers, static_cast<std::size_t>(limits.cores()));
  // Each may compute with several threads, and others start when some wait.
  return std::clamp<std::size_t>(spare_threads(options, limits) / 4, 1, wanted);
}

int computing_threads(const WorkerOptions& options, const HostLimits& limits, int computing) {
  const std::size_t share = spare_threads(options, limits) / 2 / handler_threads(options, limits);
  const auto most = static_cast<int>(std::min<std::size_t>(share, std::numeric_limits<int>::max()));
  return std::max(1, std::min({computing, limits.cores(), most}));
}

std::string limit_computing_threads(const WorkerOptions& options, const HostLimits& limits) {
  for (const char* variable : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) {
    if (std::getenv(variable) != nullptr) return "";
  }
  const int before = at::get_num_threads();
  const int now = computing_threads(options, limits, before);
  if (now >= before || before != limits.allowed_cpus) return "";
  at::set_num_threads(now);
  const std::string why =
      now == limits.cores()
          ? absl::StrCat("control groups leave this process ", now, now == 1 ? " core" : " cores")
          : absl::StrCat("this process may start ", limits.threads_left().value_or(0),
                         " more threads");
  return absl::StrCat("LibTorch computes with ", now, now == 1 ? " thread" : " threads", ", not ",
                      before, ": ", why, " (set OMP_NUM_THREADS to decide it)");
}

std::uint64_t receive_window(const WorkerOptions& options, const HostLimits& limits) {
  const bool is_limited = limits.memory.has_value() && !limits.memory->group.empty();
  const std::uint64_t asked = options.receive_window_bytes;
  return is_limited ? std::min(asked, limits.memory->most / kShareOfMemory) : asked;
}

std::string smaller_window(const WorkerOptions& options, const HostLimits& limits) {
  const std::uint64_t window = receive_window(options, limits);
  if (window == options.receive_window_bytes) return "";
  return absl::StrCat("the control group ", limits.memory->group, " has ",
                      limits.memory->most >> 20, " MiB of memory: each peer may have ",
                      window >> 20, " MiB of calls waiting here, not ",
                      options.receive_window_bytes >> 20, " (WorkerOptions::receive_window_bytes)");
}

}  // namespace sinew::internal
