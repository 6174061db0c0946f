#pragma once

#include <memory>

namespace sinew::internal {

/// What can be done once for several events rather than once for each, such as sending what they
/// have left in a queue.
class Flushable {
 public:
  virtual ~Flushable() = default;
  /// Runs on any thread; must not block or throw.
  virtual void flush() = 0;
  /// The same, unless another thread is about to flush, with more than there is now.
  virtual void flush_unless_due() { flush(); }
};

/// Asks the calling thread to flush `what` when it begins to wait for a Sinew future. The caller
/// must make sure that `what` is flushed in time if the thread never waits.
void flush_before_wait(const std::shared_ptr<Flushable>& what);

/// Flushes what the calling thread was asked for.
void flush_now();

}  // namespace sinew::internal
