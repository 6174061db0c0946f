#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "gmock/gmock.h"
#include "sinew/testing/eventually.h"

namespace sinew::testing {

/// What `read()` was when it matched, or at last if it never did. To be asserted on: read again,
/// it may be something else by then.
template <class Read, class Matcher>
auto eventual_value(const Read& read, const Matcher& matcher) {
  using Value = std::decay_t<decltype(read())>;
  const ::testing::Matcher<const Value&> matches =
      ::testing::SafeMatcherCast<const Value&>(matcher);
  std::optional<Value> value;
  eventually([&] { return matches.Matches(value.emplace(read())); });
  return *std::move(value);
}

/// Of a list that another thread fills it may be asked at any time.
template <class List>
std::optional<typename List::value_type> last_of(const List& list) {
  if (list.empty()) return std::nullopt;
  return list.back();
}

/// Expects that the expression comes to match; shows what it was at last if it does not. Looks at
/// `matcher` once.
#define EXPECT_EVENTUALLY(expression, matcher)                                               \
  if (const auto& sinew_matcher = matcher; false) {                                          \
  } else                                                                                     \
    EXPECT_THAT(::sinew::testing::eventual_value([&] { return expression; }, sinew_matcher), \
                sinew_matcher)

}  // namespace sinew::testing
