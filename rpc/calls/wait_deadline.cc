#include "sinew/rpc/calls/wait_deadline.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {

Clock::TimePoint wait_deadline(const WorkerServices& services,
                               std::optional<std::chrono::nanoseconds> timeout) {
  if (timeout.has_value() && *timeout <= std::chrono::nanoseconds(0)) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("a timeout must be positive, or kNoTimeout; this one is %d ns",
                                   timeout->count()));
  }
  if (!services.is_running()) throw_error(services.ended("it does not wait any more"));
  if (const absl::Status evicted = services.evicted(); !evicted.ok()) throw_error(evicted);
  const Clock::TimePoint deadline =
      deadline_after(services.clock().now(), timeout.value_or(services.default_timeout()));
  const CallContext* served = CallContext::current_or_null();
  return served == nullptr ? deadline : std::min(deadline, served->deadline());
}

}  // namespace sinew::internal
