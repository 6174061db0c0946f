#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sinew::internal {

/// Lines of cells as columns; the first line is the heading. What is no printable text is escaped.
std::string as_columns(const std::vector<std::vector<std::string>>& lines);

/// A name or text of a worker, fit to be shown within a sentence.
std::string cut_text(const std::string& text);

/// "1.2 s", "3 min 4 s", "2 d 3 h".
std::string time_text(std::uint64_t us);
/// "512 B", "1.5 GiB".
std::string size_text(std::uint64_t bytes);

}  // namespace sinew::internal
