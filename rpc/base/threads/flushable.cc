#include "sinew/rpc/base/threads/flushable.h"

#include <utility>
#include <vector>

namespace sinew::internal {
namespace {

// Weak: a thread that never waits must not keep a connection.
using List = std::vector<std::weak_ptr<Flushable>>;

// A thread-local because those who wait know nothing of what was sent before, and user code is
// between the two. A pointer because the thread that ends the process may call and wait after its
// thread-locals were destroyed.
thread_local List* list_of_thread = nullptr;

struct Cleaner {
  ~Cleaner() { delete std::exchange(list_of_thread, nullptr); }
};

List& asked_for() {
  if (list_of_thread == nullptr) {
    thread_local const Cleaner cleaner;
    list_of_thread = new List();
  }
  return *list_of_thread;
}

}  // namespace

void flush_before_wait(const std::shared_ptr<Flushable>& what) {
  for (const std::weak_ptr<Flushable>& each : asked_for()) {
    if (!each.owner_before(what) && !what.owner_before(each)) return;
  }
  asked_for().push_back(what);
}

void flush_now() {
  if (list_of_thread == nullptr || list_of_thread->empty()) return;
  const List list = std::exchange(*list_of_thread, {});
  for (const std::weak_ptr<Flushable>& each : list) {
    if (const std::shared_ptr<Flushable> what = each.lock()) what->flush_unless_due();
  }
}

}  // namespace sinew::internal
