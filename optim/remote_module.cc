#include "sinew/optim/remote_module.h"

#include "ATen/Functions.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/invocation.h"

namespace sinew::internal {

RemoteDevice parse_remote_device(const Worker& worker, std::string_view text) {
  const std::string place(text);
  const std::vector<std::string> parts = absl::StrSplit(place, '/');
  const auto fail = [&place](const char* why) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("'%s' is no place for a module: %s; write \"worker\", "
                                   "\"worker/cuda:0\" or \"rank:1/cpu\"",
                                   absl::CHexEscape(place), why));
  };
  if (parts.size() > 2) fail("it has more than one '/'");
  if (parts[0].empty()) fail("it names no worker");
  if (parts.size() == 2 && parts[1].empty()) fail("it names no device after the '/'");
  RemoteDevice result;
  result.device = parts.size() == 2 ? parts[1] : "cpu";
  absl::string_view rank_text = parts[0];
  if (absl::ConsumePrefix(&rank_text, "rank:")) {
    int rank = -1;
    if (!absl::SimpleAtoi(rank_text, &rank) || rank < 0) fail("its rank is no number");
    result.peer = worker.peer(rank);
  } else {
    result.peer = worker.peer(parts[0]);
  }
  return result;
}

c10::Device result_device(const c10::Device& device) {
  const auto* call = dynamic_cast<const Invocation*>(CallContext::current_or_null());
  return call != nullptr && call->can_return(device) ? device : c10::Device(c10::kCPU);
}

c10::Device checked_device(const std::string& device) {
  try {
    const c10::Device parsed(device);
    // Says at once that a device is not there.
    at::empty({1}, at::TensorOptions().device(parsed));
    return parsed;
  } catch (const c10::Error& error) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("'%s' is no device of this worker: %s", absl::CHexEscape(device),
                                   error.what_without_backtrace()));
  }
}

}  // namespace sinew::internal
