#include "sinew/rpc/base/threads/flushable.h"

#include <utility>
#include <vector>

namespace sinew::internal {
namespace {

// A thread-local because those who wait know nothing of what was sent before, and user code is
// between the two. Weak: a thread that never waits must not keep a connection.
std::vector<std::weak_ptr<Flushable>>& asked_for() {
  thread_local std::vector<std::weak_ptr<Flushable>> list;
  return list;
}

}  // namespace

void flush_before_wait(const std::shared_ptr<Flushable>& what) {
  for (const std::weak_ptr<Flushable>& each : asked_for()) {
    if (!each.owner_before(what) && !what.owner_before(each)) return;
  }
  asked_for().push_back(what);
}

void flush_now() {
  if (asked_for().empty()) return;
  const std::vector<std::weak_ptr<Flushable>> list = std::exchange(asked_for(), {});
  for (const std::weak_ptr<Flushable>& each : list) {
    if (const std::shared_ptr<Flushable> what = each.lock()) what->flush();
  }
}

}  // namespace sinew::internal
