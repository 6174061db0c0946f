#pragma once

#include <string>

namespace sinew::internal {

/// Writes a line for people to stderr, about a worker unless its name is empty. Thread-safe.
void log_line(const std::string& worker, const std::string& text);

}  // namespace sinew::internal
