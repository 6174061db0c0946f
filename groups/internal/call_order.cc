#include "sinew/groups/internal/call_order.h"

#include <atomic>

namespace sinew::internal {

std::uint64_t CollectiveCaller::this_thread() {
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t own = last.fetch_add(1) + 1;
  return own;
}

std::optional<std::uint64_t> CallOrder::begin(const CollectiveCaller& caller,
                                              std::uint64_t number) {
  if (waits_ > 0 && waiting_thread_ != caller.thread) return last_number_;
  if (!caller.blocks) return std::nullopt;
  waiting_thread_ = caller.thread;
  last_number_ = number;
  ++waits_;
  return std::nullopt;
}

void CallOrder::end(const CollectiveCaller& caller) {
  if (caller.thread != 0 && caller.blocks) --waits_;
}

}  // namespace sinew::internal
