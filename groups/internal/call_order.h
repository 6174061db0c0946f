#pragma once

#include <cstdint>
#include <optional>

namespace sinew::internal {

/// Who calls a collective.
struct CollectiveCaller {
  /// Of this thread; never 0, and never that of another thread, also of one that has ended.
  static std::uint64_t this_thread();

  /// 0: not followed.
  std::uint64_t thread = 0;
  /// The call returns when the collective is done.
  bool blocks = false;
  /// Whoever made the call has an order, though its threads differ: continuations and handlers,
  /// LibTorch's Reducer. Only what blocks meanwhile is out of it.
  bool is_ordered = false;
};

/// Whether the collectives of one group at one rank have an order that the program gives them. Two
/// threads that call at once have none: other ranks may see theirs the other way, and each would
/// get what belongs to the other one. Pure.
class CallOrder {
 public:
  /// The number of the collective that another thread has under way, so that nothing says which of
  /// the two is first; nullopt: the caller is next, and its collective is under way until end().
  std::optional<std::uint64_t> begin(const CollectiveCaller& caller, std::uint64_t number);
  void end(const CollectiveCaller& caller);

 private:
  struct Thread {
    std::uint64_t thread = 0;
    int under_way = 0;
    std::uint64_t last_number = 0;
  };
  static bool is_another(const Thread& known, const CollectiveCaller& caller) {
    return known.under_way > 0 && known.thread != caller.thread;
  }
  Thread& place_of(const CollectiveCaller& caller) {
    return caller.blocks ? blocking_ : unordered_;
  }

  /// The thread in a call that blocks; its continuations may call more.
  Thread blocking_;
  /// The thread of calls that do not, and have no order but its own.
  Thread unordered_;
};

}  // namespace sinew::internal
