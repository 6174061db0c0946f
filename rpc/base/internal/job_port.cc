#include "sinew/rpc/base/internal/job_port.h"

#include <cstdint>

namespace sinew::internal {
namespace {

constexpr int kPortWithoutJob = 29500;
// Below the ephemeral ports (Linux: 32768 and up).
constexpr int kFirstPort = 20000;
constexpr int kPorts = 12000;

}  // namespace

int job_port(absl::string_view job) {
  if (job.empty()) return kPortWithoutJob;
  // FNV-1a. It must be the same in every process, which absl::Hash is not.
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return kFirstPort + static_cast<int>(hash % kPorts);
}

}  // namespace sinew::internal
