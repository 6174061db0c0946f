#include "sinew/launch/run/host_devices.h"

#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sinew::internal {

int usable_gpus() {
  int gpus = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/dev", error), end; !error && at != end;
       at.increment(error)) {
    // The driver makes /dev/nvidia0 and so on; /dev/nvidiactl and others are none.
    const std::string name = at->path().filename().string();
    absl::string_view number = name;
    int ignored = 0;
    if (absl::ConsumePrefix(&number, "nvidia") && absl::SimpleAtoi(number, &ignored)) ++gpus;
  }
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible_gpus(gpus,
                      visible == nullptr ? std::nullopt : std::optional<std::string>(visible));
}

int visible_gpus(int gpus, const std::optional<std::string>& visible_devices) {
  if (!visible_devices || gpus == 0) return gpus;
  std::set<std::string> seen;
  for (const absl::string_view entry : absl::StrSplit(*visible_devices, ',')) {
    const std::string device(absl::StripAsciiWhitespace(entry));
    int number = 0;
    const bool is_number = absl::SimpleAtoi(device, &number);
    const bool is_name = absl::StartsWith(device, "GPU-") || absl::StartsWith(device, "MIG-");
    if (is_number ? number < 0 || number >= gpus : !is_name) break;
    // CUDA shows none at all when one is there twice.
    if (!seen.insert(device).second) return 0;
  }
  return static_cast<int>(seen.size());
}

}  // namespace sinew::internal
