#pragma once

namespace sinew::internal {

/// page.html, which shows /state.json and /stuck.json.
extern const char* const kPage;

}  // namespace sinew::internal
