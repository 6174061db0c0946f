#include "sinew/testing/leftovers.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sinew::testing {
namespace {

/// Counts of what comes and goes; others say what has been, or what a worker keeps at hand.
bool returns_to_zero(const std::string& counter) {
  return counter == "rpc.client_active_calls" || counter == "rpc.server_active_calls" ||
         counter == "rpc.limited_calls" || absl::StartsWith(counter, "rref.") ||
         absl::StartsWith(counter, "streams.") || absl::StartsWith(counter, "names.") ||
         counter == "autograd.contexts" || counter == "autograd.sends" ||
         counter == "autograd.recvs" || counter == "autograd.passes";
}

}  // namespace

std::vector<std::string> leftovers(const Worker& worker) {
  std::vector<std::string> lines;
  for (const auto& [name, count] : worker.counters()) {
    if (count == 0 || !returns_to_zero(name)) continue;
    lines.push_back(absl::StrCat(worker.name(), ": ", name, " is ", count));
  }
  return lines;
}

}  // namespace sinew::testing
