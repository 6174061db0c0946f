#include "sinew/optim/remote_module.h"

#include "ATen/Functions.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/invocation.h"

namespace sinew::internal {

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
