#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sinew/launch/ctl/job_view.h"
#include "sinew/launch/ctl/stuck.h"

namespace sinew::internal {

/// A list of what each worker says, with the names of operator.proto; who says nothing has the
/// membership "NO ANSWER".
absl::StatusOr<std::string> as_json(const JobView& job);

/// A list of findings, each a list of its lines.
std::string as_json(const std::vector<Finding>& findings);

}  // namespace sinew::internal
