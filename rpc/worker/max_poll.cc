#include "sinew/rpc/worker/max_poll.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

constexpr char kVariable[] = "SINEW_MAX_POLL_US";

}  // namespace

absl::StatusOr<std::chrono::nanoseconds> max_poll_of(const WorkerOptions& options,
                                                     const EnvironmentReader& environment) {
  const std::optional<std::string> text = environment(kVariable);
  if (!text.has_value()) return options.max_poll;
  std::uint32_t limit = 0;
  if (!absl::SimpleAtoi(*text, &limit)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the environment variable ", kVariable, " is '", *text,
                     "'; it must be a number of microseconds, 0 for workers that always sleep"));
  }
  return std::min<std::chrono::nanoseconds>(options.max_poll, std::chrono::microseconds(limit));
}

}  // namespace sinew::internal
