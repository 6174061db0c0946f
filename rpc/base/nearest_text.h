#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sinew {

/// The candidate that was most likely meant by `text`, for messages about an unknown name. It is
/// the one that is reached from it by changing, adding or dropping the fewest characters
/// (Levenshtein's distance), the first of several. A candidate that is the same behind a namespace
/// ("app::scale" for "scale") is near too.
///
/// None if that would take more than a third of the text, or more than eight; two are always
/// allowed. Texts of more than 256 bytes are near to nothing, so the time is bounded for any input.
std::optional<std::string> nearest_text(std::string_view text,
                                        const std::vector<std::string>& candidates);

}  // namespace sinew
