#pragma once

#include <memory>
#include <string>
#include <utility>

#include "sinew/autograd/internal/context_state.h"
#include "sinew/rpc/base/internal/thread_context.h"

namespace sinew::internal {

/// What a thread works on, plus an autograd context.
class ContextThread final : public ThreadContext {
 public:
  ContextThread(std::shared_ptr<const ThreadContext> outer, std::shared_ptr<ContextState> context)
      : outer_(std::move(outer)), ambient_(std::move(context)) {}

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

/// Lets the calling thread work in a context, for the scope's lifetime.
class ContextThreadScope {
 public:
  explicit ContextThreadScope(std::shared_ptr<ContextState> context)
      : scope_(std::make_shared<ContextThread>(ThreadContext::current(), std::move(context))) {}

 private:
  const ThreadContext::Scope scope_;
};

}  // namespace sinew::internal
