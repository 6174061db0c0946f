#pragma once

#include <string_view>

namespace sinew::internal {

/// Whether `text` is UTF-8 as Protocol Buffers' parsers understand it: no overlong forms, no
/// surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace sinew::internal
