#pragma once

#include <cstddef>
#include <string_view>

namespace sinew::internal {

/// How many characters must be changed, added or dropped to come from one text to the other
/// (Levenshtein's distance), or `most` + 1 if that is more than `most`. Takes time by the length of
/// a text times the smaller of the other one's and `most`.
std::size_t edit_distance(std::string_view from, std::string_view to, std::size_t most);

}  // namespace sinew::internal
