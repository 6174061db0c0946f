#pragma once

#include <memory>
#include <string>
#include <utility>

#include "sinew/autograd/internal/context_state.h"
#include "sinew/autograd/internal/context_work.h"
#include "sinew/rpc/base/internal/thread_context.h"

namespace sinew::internal {

/// What a thread works on, plus an autograd context.
class ContextThread final : public ThreadContext {
 public:
  ContextThread(std::shared_ptr<const ThreadContext> outer, std::shared_ptr<ContextWork> work)
      : outer_(std::move(outer)), ambient_(std::move(work)) {}

  std::string describe_chain() const override {
    return outer_ == nullptr ? std::string() : outer_->describe_chain();
  }
  std::chrono::steady_clock::time_point deadline() const override {
    return outer_ == nullptr ? ThreadContext::deadline() : outer_->deadline();
  }
  const std::shared_ptr<void>& ambient() const override { return ambient_; }
  const ThreadContext* served() const override {
    return outer_ == nullptr ? nullptr : outer_->served();
  }

 private:
  const std::shared_ptr<const ThreadContext> outer_;
  const std::shared_ptr<void> ambient_;
};

/// The work of the calling thread, if that works in a context.
inline std::shared_ptr<ContextWork> current_work() {
  const auto& current = ThreadContext::current();
  if (current == nullptr || current->ambient() == nullptr) return nullptr;
  // The only thing that follows work.
  return std::static_pointer_cast<ContextWork>(current->ambient());
}

/// Lets the calling thread work in a context, for the scope's lifetime.
class ContextThreadScope {
 public:
  explicit ContextThreadScope(const std::shared_ptr<ContextState>& context)
      : scope_(std::make_shared<ContextThread>(
            ThreadContext::current(),
            std::make_shared<ContextWork>(context, context->self().name, context->next_scope()))) {}

 private:
  const ThreadContext::Scope scope_;
};

}  // namespace sinew::internal
