#include "sinew/rpc/call_context.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/running_workers.h"
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

Worker current_worker() {
  if (const CallContext* const context = CallContext::current_or_null()) return context->worker();
  const std::vector<Worker> running = internal::running_workers();
  if (running.size() == 1) return running.front();
  if (running.empty()) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "there is no current worker, since none runs in this process: start one with "
                   "sinew::init_rpc()");
  }
  std::vector<std::string> names;
  for (const Worker& worker : running) names.push_back(absl::StrCat("'", worker.name(), "'"));
  std::sort(names.begin(), names.end());
  throw RpcError(
      ErrorCode::kFailedPrecondition,
      absl::StrCat("there is no current worker outside of handlers, since several run in this "
                   "process (",
                   absl::StrJoin(names, ", "), "): say which one is meant"));
}

}  // namespace sinew
