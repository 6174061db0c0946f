#pragma once

#include <string>

namespace sinew::internal {

/// A literal of a loopback network, or "localhost". Other names are not looked up.
bool is_loopback(const std::string& host);

/// Whether `host`, a literal or a name, leads to this machine's loopback from here, so that another
/// machine does not find there what this one finds: it is such a literal, or all that the name
/// stands for here is (127.0.1.1, as Debian has it for a machine's own name). Looks the name up,
/// which blocks; false for one that is unknown.
bool leads_to_loopback(const std::string& host);

}  // namespace sinew::internal
