#include "sinew/rpc/calls/served_error.h"

#include <utility>

#include "sinew/rpc/calls/error_codec.h"

namespace sinew::internal {
namespace {

bool is_rejected(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Rejected&) {
    return true;
  } catch (...) {
    return false;
  }
}

// Calls have methods; the loss of a worker is one of the network's failures without a call.
bool is_of_another_call(const ErrorInfo& info) {
  return !info.method.empty() || info.origin == ErrorOrigin::kNetwork;
}

void nest(ErrorInfo& info) {
  info.causes.insert(info.causes.begin(),
                     FailedCall{std::move(info.peer), std::move(info.method), info.origin});
  if (info.causes.size() > kMaxCauses) info.causes.resize(kMaxCauses);
  info.origin = ErrorOrigin::kNestedCall;
}

}  // namespace

ErrorInfo describe_served(const std::exception_ptr& error, ServedStage stage) {
  ErrorInfo info = describe(error);
  if (stage == ServedStage::kBeforeMethod) {
    // What a reference's creating call failed with keeps its origin.
    if (info.origin == ErrorOrigin::kThisWorker) info.origin = ErrorOrigin::kCallee;
  } else {
    info.execution = is_rejected(error) ? Execution::kDidNotRun : Execution::kMayHaveRun;
    if (is_of_another_call(info)) {
      nest(info);
    } else if (info.origin == ErrorOrigin::kThisWorker) {
      info.origin = ErrorOrigin::kHandler;
    }
  }
  info.peer.clear();
  info.method.clear();
  return info;
}

}  // namespace sinew::internal
