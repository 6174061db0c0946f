#include "sinew/rpc/call_context.h"

#include <utility>

#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/worker.h"

namespace sinew {

CallContext::CallContext(WorkerInfo caller, internal::Clock::TimePoint deadline)
    : caller_(std::move(caller)), deadline_(deadline) {}

const CallContext* CallContext::current_or_null() {
  const auto& context = internal::ThreadContext::current();
  return context == nullptr ? nullptr : dynamic_cast<const CallContext*>(context->served());
}

const CallContext& CallContext::current() {
  const CallContext* context = current_or_null();
  if (context == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "there is no current call: this thread does not run a handler of a worker");
  }
  return *context;
}

std::string CallContext::describe_chain() const { return absl::StrJoin(chain(), " -> "); }

Worker current_worker() { return CallContext::current().worker(); }

}  // namespace sinew
