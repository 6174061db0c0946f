#pragma once

#include <string>

namespace sinew::internal {

/// Writes a line for people about a worker to stderr. Thread-safe.
void log_line(const std::string& worker, const std::string& text);

}  // namespace sinew::internal
