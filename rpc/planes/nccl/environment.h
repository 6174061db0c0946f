#pragma once

#include <functional>

#include "absl/status/status.h"

namespace sinew::internal {

/// NCCL 2.27, as ncclGetVersion says it. Before that, a thread has one job for all that its
/// communicators do without blocking (ncclGroupJobMain in NCCL's group.cc): what a second one
/// begins meanwhile is refused, or overwrites the first.
constexpr int kMinNcclVersion = 22700;

/// Why the plane must stay out of use in a process with this version of NCCL, whose environment is
/// `variable` (as getenv); OK otherwise.
absl::Status check_nccl_environment(int version,
                                    const std::function<const char*(const char*)>& variable);

/// NCCL neither encrypts nor authenticates: why the plane is not used together with credentials
/// that use TLS, unless the user wants it all the same.
absl::Status check_nccl_beside_tls(bool uses_tls, bool allow_unencrypted);

}  // namespace sinew::internal
