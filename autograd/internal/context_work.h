#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

namespace sinew::internal {

class ContextState;

/// Names a call of a context by the work that makes it, and by which of that work's calls it is:
/// the same in each run of a program, whatever runs at the same time, as long as each handler makes
/// its calls in one order.
struct CallName {
  /// ContextWork::id() of the caller.
  std::uint64_t work = 0;
  std::uint64_t number = 0;

  friend bool operator<(const CallName& a, const CallName& b) {
    return std::tie(a.work, a.number) < std::tie(b.work, b.number);
  }
};

/// A call, or the reply to it.
struct MessageName {
  enum class Kind { kCall, kReply };
  CallName call;
  Kind kind = Kind::kCall;

  friend bool operator<(const MessageName& a, const MessageName& b) {
    return std::tie(a.call, a.kind) < std::tie(b.call, b.kind);
  }
};

/// One line of work in a context: that of an open scope, or of the handler of a call that was made
/// in the context. It is what follows the work (ThreadContext::ambient). Thread-safe.
class ContextWork {
 public:
  /// The work of the handler of that call.
  ContextWork(std::shared_ptr<ContextState> context, const CallName& call);
  /// The work within scope number `scope` at that worker.
  ContextWork(std::shared_ptr<ContextState> context, std::string_view worker, std::uint64_t scope);

  const std::shared_ptr<ContextState>& context() const { return context_; }
  std::uint64_t id() const { return id_; }
  /// Of the next call that this work makes.
  CallName next_call() { return {id_, calls_.fetch_add(1, std::memory_order_relaxed)}; }

 private:
  const std::shared_ptr<ContextState> context_;
  const std::uint64_t id_;
  std::atomic<std::uint64_t> calls_{0};
};

}  // namespace sinew::internal
