#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sinew/groups/process_group.h"
#include "sinew/groups/store.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// Where the ranks of a group meet, and this one's place among them.
struct Meeting {
  Store store;
  /// The store was opened for this meeting alone: no other process uses its address.
  bool is_own_store = false;
  /// Why others may not come: "; ...", or empty.
  std::string hint;
  int rank = 0;
  int size = 1;
  /// The local address where connections are to be accepted: a literal without port.
  std::string listen_host;
  /// Set when they meet over a worker, whose members are those by rank.
  std::optional<Worker> worker;
  std::vector<WorkerInfo> workers;
};

/// Goes there, as the options say, and opens the store. Throws RpcError as init_process_group().
Meeting find_meeting(const GroupOptions& options, Clock::TimePoint deadline);

}  // namespace sinew::internal
