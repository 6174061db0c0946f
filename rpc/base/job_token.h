#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/environment.h"

namespace sinew::internal {

/// Names of the environment variables that tell a process its job's token: itself, or the path of a
/// file that has it.
inline constexpr char kJobToken[] = "SINEW_JOB_TOKEN";
inline constexpr char kJobTokenFile[] = "SINEW_JOB_TOKEN_FILE";

/// Whether the environment says anything of a token; also that there is none (set to nothing).
bool says_job_token(const EnvironmentReader& environment);

/// The token that the environment tells; empty: none. kInvalidArgument, naming the variable or the
/// file, when both are set, when the file cannot be read, belongs to another user or is readable
/// for all, or when it is none.
absl::StatusOr<std::string> read_job_token(const EnvironmentReader& environment);

/// kInvalidArgument unless it is 16 to 1024 characters that can be seen. `where` names it in the
/// error, which does not show it.
absl::Status check_job_token(absl::string_view token, absl::string_view where);

/// 128 bits from the operating system's random source, as text.
std::string draw_job_token();

}  // namespace sinew::internal
