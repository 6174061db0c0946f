#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/worker.h"
#include "sinew/rpc/worker/worker_core.h"

namespace sinew::testing {

/// What barriers and the shutdown of a job are made of: the values of all `names` (default: all
/// members), by name.
inline std::map<std::string, std::string> gather(const Worker& worker, std::string value,
                                                 std::vector<std::string> names = {}) {
  if (names.empty()) {
    for (const WorkerInfo& member : worker.workers()) names.push_back(member.name);
  }
  std::sort(names.begin(), names.end());
  const std::vector<std::string> values =
      WorkerAccess::core(worker)
          ->membership()
          .all_gather_async(names, std::move(value), std::chrono::minutes(5))
          .wait();
  std::map<std::string, std::string> by_name;
  for (std::size_t i = 0; i < names.size(); ++i) by_name.emplace(names[i], values[i]);
  return by_name;
}

}  // namespace sinew::testing
