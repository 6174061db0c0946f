#pragma once

#include <string>
#include <string_view>

namespace sinew::internal {

/// What stands between the quotes of a text in JSON. Newlines and other control characters become
/// spaces.
std::string json_text(std::string_view text);

}  // namespace sinew::internal
