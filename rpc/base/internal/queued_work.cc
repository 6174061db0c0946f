#include "sinew/rpc/base/internal/queued_work.h"

#include <atomic>

namespace sinew::internal {
namespace {

std::atomic<FindQueuedWork> finder{nullptr};

}  // namespace

std::shared_ptr<const QueuedWork> queued_work(QueuedOn which) {
  const FindQueuedWork find = finder.load(std::memory_order_acquire);
  return find == nullptr ? nullptr : find(which);
}

void set_find_queued_work(FindQueuedWork find) { finder.store(find, std::memory_order_release); }

bool may_have_queued_work() { return finder.load(std::memory_order_relaxed) != nullptr; }

}  // namespace sinew::internal
