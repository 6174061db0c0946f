#pragma once

#include <string>

#include "sinew/launch/ctl/job_view.h"

namespace sinew::internal {

/// The lists of WorkerState that metrics are made of.
const std::vector<std::string>& metrics_wanted();

/// What a job's workers say, as Prometheus reads it (text format 0.0.4); docs/operate.md lists all.
std::string metrics_text(const JobView& job);

}  // namespace sinew::internal
