#pragma once

#include <string_view>

#include "sinew/rpc/base/internal/for_each.h"

// What SINEW_METHOD, SINEW_SERVICE and SINEW_STRUCT say where they stand in a namespace, before the
// compiler says its own of each specialisation in turn.
#define SINEW_INTERNAL_AT_GLOBAL_SCOPE(macro) \
  SINEW_INTERNAL_AT_GLOBAL_SCOPE_(SINEW_INTERNAL_CAT(sinew_here_, __COUNTER__), macro)
#define SINEW_INTERNAL_AT_GLOBAL_SCOPE_(here, macro)         \
  struct here;                                               \
  static_assert(sinew::internal::is_at_global_scope<here>(), \
                "Sinew: " macro                              \
                " is written at global scope: close the namespaces first, and give names in full")

namespace sinew::internal {

/// Whether `Here`, a class whose name begins with sinew_here_, is declared outside of namespaces,
/// or in sinew, where Sinew's own types are named.
template <class Here>
constexpr bool is_at_global_scope() {
  // ... [with Here = app::sinew_here_7]
  constexpr std::string_view kOurs = " sinew::";
  const std::string_view text = __PRETTY_FUNCTION__;
  const std::string_view before = text.substr(0, text.rfind("sinew_here_"));
  return before.substr(before.size() - 2) != "::" ||
         before.substr(before.size() - kOurs.size()) == kOurs;
}

}  // namespace sinew::internal
