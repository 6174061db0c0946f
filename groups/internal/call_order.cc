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
  if (is_another(blocking_, caller)) return blocking_.last_number;
  if (!caller.is_ordered && is_another(unordered_, caller)) return unordered_.last_number;
  if (caller.is_ordered && !caller.blocks) return std::nullopt;
  Thread& place = place_of(caller);
  place.thread = caller.thread;
  ++place.under_way;
  place.last_number = number;
  return std::nullopt;
}

void CallOrder::end(const CollectiveCaller& caller) {
  if (caller.thread == 0 || (caller.is_ordered && !caller.blocks)) return;
  --place_of(caller).under_way;
}

}  // namespace sinew::internal
