#pragma once

#include <string>

#include "absl/status/status.h"
#include "sinew/launch/ctl/job_view.h"

namespace sinew::internal {

/// Who may look.
enum class MonitorFor {
  /// Clients that present the job's token; in a job without one, clients on this host.
  kTokenOrThisHost,
  /// All clients that reach it, with the token if the job has one.
  kEverybody,
};

/// Serves over HTTP until the process is asked to end: a page (/), what it shows (/state.json,
/// /stuck.json), and metrics (/metrics), of the whole job. Nothing can be changed by it. In a job
/// with a token that is asked for, as a bearer token or as a password; without one `bind` has to be
/// a loopback address, unless it is for everybody (kPermissionDenied). Blocks.
absl::Status serve_monitor(const JobAccess& access, const std::string& bind, MonitorFor who);

}  // namespace sinew::internal
