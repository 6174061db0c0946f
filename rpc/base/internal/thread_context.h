#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace sinew::internal {

/// What the code that the calling thread runs is part of: a call that is being served, with its
/// deadline. rpc/ derives from it and installs one around each handler; futures carry the one that
/// was current when a continuation was registered over to the thread that runs the continuation, so
/// that a deadline (or whatever else a derived class holds) follows the work and not the thread.
/// Immutable once installed.
class ThreadContext {
 public:
  virtual ~ThreadContext() = default;

  /// The calls that led here, outermost first, for error texts; may be empty.
  virtual std::string describe_chain() const { return {}; }
  /// When waits that are made on behalf of this context end with kDeadlineExceeded.
  virtual std::chrono::steady_clock::time_point deadline() const {
    return std::chrono::steady_clock::time_point::max();
  }
  /// What a layer above lets follow the work: the autograd context. Null when there is none.
  virtual const std::shared_ptr<void>& ambient() const;
  /// The context of the call that is being served: this one, or the one that this one was installed
  /// upon. Null when there is none.
  virtual const ThreadContext* served() const { return this; }

  /// The calling thread's context, or null. The reference is valid until the thread's context
  /// changes.
  static const std::shared_ptr<const ThreadContext>& current();

  /// Installs a context (null: none) on the calling thread, and returns the one before. For what
  /// moves from thread to thread; otherwise there is Scope.
  static std::shared_ptr<const ThreadContext> exchange(
      std::shared_ptr<const ThreadContext> context);

  /// Installs a context (null: none) on the calling thread for the scope's lifetime. Scopes nest
  /// and must end on the thread and in the order in which they began.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<const ThreadContext> context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::shared_ptr<const ThreadContext> previous_;
  };
};

}  // namespace sinew::internal
