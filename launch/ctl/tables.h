#pragma once

#include <string>
#include <vector>

#include "sinew/launch/ctl/job_view.h"

namespace sinew::internal {

/// What a command of sinew-ctl shows.
struct Shown {
  const char* command;
  const char* help;
  /// The lists of WorkerState that it is made of.
  std::vector<std::string> wanted;
  std::string (*show)(const JobView& job);
};

/// All that show a table.
const std::vector<Shown>& all_shown();

}  // namespace sinew::internal
