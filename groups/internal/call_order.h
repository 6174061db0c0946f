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
};

/// Whether the collectives of one group at one rank have an order that the program gives them. A
/// thread that calls one while another thread waits in one has none: other ranks may see theirs the
/// other way, and each would get what belongs to the other one. Those that return at once may be
/// started by threads that take turns, such as those of a backward pass. Pure.
class CallOrder {
 public:
  /// The number of the collective in which another thread waits, so that nothing says which of the
  /// two is first; nullopt: the caller is next, and its collective is under way until end().
  std::optional<std::uint64_t> begin(const CollectiveCaller& caller, std::uint64_t number);
  void end(const CollectiveCaller& caller);

 private:
  std::uint64_t waiting_thread_ = 0;
  /// Continuations that run in it may wait in more.
  int waits_ = 0;
  std::uint64_t last_number_ = 0;
};

}  // namespace sinew::internal
