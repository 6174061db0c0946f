#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sinew/launch/internal/job_state.h"
#include "sinew/tests/launch/job_model.h"
#include "sinew/tests/threads/support/explore.h"

namespace sinew::internal::sim {

/// A small job, all of whose courses are looked at.
struct JobWorld {
  std::string name;
  JobRules rules;
  int stops = 0;
};

inline std::vector<JobWorld> job_worlds() {
  const auto rules = [](std::size_t processes, int max_restarts,
                        std::vector<std::size_t> leaders = {}) {
    JobRules result;
    result.processes = processes;
    result.max_restarts = max_restarts;
    result.leaders = std::move(leaders);
    return result;
  };
  return {
      {"three", rules(3, 0), 3},
      {"restarts", rules(2, 2), 3},
      {"a leader", rules(3, 1, {0}), 3},
      {"two leaders", rules(3, 0, {0, 2}), 1},
  };
}

inline std::string explore(const JobWorld& world, std::size_t* states) {
  return explore_from(JobModel(world.rules, world.stops), states);
}

}  // namespace sinew::internal::sim
