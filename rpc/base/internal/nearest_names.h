#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sinew::internal {

/// The `most` of `known` that are most like `name`, for texts about a name that is not there: by
/// Levenshtein's distance (of the first 128 bytes), then by the alphabet.
std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> known,
                                       std::size_t most);

/// `'a', 'b' and 3 more`: all of `known`, or the first ones of nearest_names(); "none" if there is
/// none. Escapes what cannot be printed.
std::string nearest_names_text(std::string_view name, const std::vector<std::string>& known,
                               std::size_t most = 8);

}  // namespace sinew::internal
