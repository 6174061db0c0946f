#include "sinew/rpc/base/internal/thread_context.h"

#include <utility>

namespace sinew::internal {
namespace {

// A thread-local because user code lies between the place that installs it (the serving of a call)
// and those that read it (a wait, a call, then()), and users should not have to pass it through.
std::shared_ptr<const ThreadContext>& slot() {
  thread_local std::shared_ptr<const ThreadContext> context;
  return context;
}

}  // namespace

const std::shared_ptr<void>& ThreadContext::ambient() const {
  // Never destroyed: threads look at it until the process is gone.
  static const auto& none = *new std::shared_ptr<void>();
  return none;
}

const std::shared_ptr<const ThreadContext>& ThreadContext::current() { return slot(); }

std::shared_ptr<const ThreadContext> ThreadContext::exchange(
    std::shared_ptr<const ThreadContext> context) {
  return std::exchange(slot(), std::move(context));
}

ThreadContext::Scope::Scope(std::shared_ptr<const ThreadContext> context)
    : previous_(exchange(std::move(context))) {}

ThreadContext::Scope::~Scope() { slot() = std::move(previous_); }

}  // namespace sinew::internal
