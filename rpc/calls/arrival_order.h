#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "sinew/rpc/link/frame_numbers.h"

namespace sinew::internal {

/// The order in which one worker has made its calls, for the callee that reads them on several
/// threads: a small call overtakes one with large tensors, and its thread another one's. By the
/// numbers of their frames. Pure; not thread-safe.
class ArrivalOrder {
 public:
  using Numbers = std::vector<std::uint64_t>;

  /// A frame has arrived that is no call, or one that is not wanted any more. Returns the calls
  /// that are ready and have none before them now, in their order.
  Numbers on_frame(std::uint64_t number);
  /// A call has arrived. It is before all later ones until it is ready, or is passed over.
  void on_call(std::uint64_t number);
  /// The call has no order, or has ended.
  Numbers pass(std::uint64_t number);
  /// The call goes on once all before it have.
  Numbers ready(std::uint64_t number);

 private:
  Numbers advance();

  FrameNumbers arrived_;
  // Those that have arrived; true: it is ready.
  absl::btree_map<std::uint64_t, bool> calls_;
};

}  // namespace sinew::internal
