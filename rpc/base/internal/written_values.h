#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/environment.h"

namespace sinew::internal {

// Values that people and launchers write into URLs and environment variables. `what` names the
// place in the texts of errors, which are all kInvalidArgument and show what was written.

/// Cut to a length that fits into a message, and fit to be shown.
std::string shown(absl::string_view text);
/// The same in quotes.
std::string quoted(absl::string_view text);

/// A decimal number, with a minus sign or without, and nothing else: no blanks, no plus sign.
std::optional<int> parse_integer(absl::string_view text);
absl::StatusOr<int> parse_integer_of(absl::string_view what, absl::string_view text);

/// A port from 0 to 65535.
absl::StatusOr<int> parse_port_of(absl::string_view what, absl::string_view text);

/// The characters of a host name, an IPv4 address, or an IPv6 address without brackets.
absl::Status check_host(absl::string_view what, absl::string_view host);

/// nullopt when the variable is not set.
absl::StatusOr<std::optional<int>> integer_variable(const EnvironmentReader& environment,
                                                    const std::string& name);

}  // namespace sinew::internal
