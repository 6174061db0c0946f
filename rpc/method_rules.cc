#include "sinew/rpc/method_rules.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"

namespace sinew {
namespace internal {

// Not fnmatch(): that depends on the locale, and ends at a zero byte, which a certificate may hold.
// Only the last star that was met needs to be tried again, so this takes at most the product of
// both lengths.
bool matches_pattern(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_ends = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_ends = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_ends;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace internal

namespace {

using internal::matches_pattern;

constexpr std::size_t kMaxPatternBytes = 512;

bool matches_any(const std::vector<std::string>& patterns, std::string_view text) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [text](const std::string& pattern) { return matches_pattern(pattern, text); });
}

void check_pattern(std::string_view pattern) {
  if (pattern.empty() || pattern.size() > kMaxPatternBytes) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("a pattern of who may call a method has 1 to %d bytes, "
                                   "this one has %d",
                                   kMaxPatternBytes, pattern.size()));
  }
}

void check_worker_pattern(std::string_view pattern) {
  check_pattern(pattern);
  std::string shortest;
  for (const char c : pattern) {
    if (c != '*') shortest.push_back(c == '?' ? 'x' : c);
  }
  if (shortest.empty()) return;
  const absl::Status valid = validate_worker_name(shortest);
  if (valid.ok()) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat("allow(\"%s\") matches no worker: %s. What certificates say is "
                                 "for allow_identity()",
                                 internal::printable(pattern), valid.message()));
}

void check_limit(std::int64_t limit, std::string_view what) {
  if (limit >= 1) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat("%s(%d): a limit is at least 1", what, limit));
}

}  // namespace

MethodRules MethodRules::with_workers(const std::vector<std::string_view>& patterns) const {
  MethodRules rules = *this;
  for (const std::string_view pattern : patterns) {
    check_worker_pattern(pattern);
    rules.workers_.emplace_back(pattern);
  }
  return rules;
}

MethodRules MethodRules::with_identities(const std::vector<std::string_view>& patterns) const {
  MethodRules rules = *this;
  for (const std::string_view pattern : patterns) {
    check_pattern(pattern);
    rules.identities_.emplace_back(pattern);
  }
  return rules;
}

MethodRules MethodRules::limit_calls(std::int64_t calls) const {
  check_limit(calls, "limit_calls");
  MethodRules rules = *this;
  rules.max_calls_ = calls;
  return rules;
}

MethodRules MethodRules::limit_bytes(std::int64_t bytes) const {
  check_limit(bytes, "limit_bytes");
  MethodRules rules = *this;
  rules.max_bytes_ = bytes;
  return rules;
}

MethodRules MethodRules::one_at_a_time(OneAtATime how) const {
  MethodRules rules = *this;
  rules.turns_ = how;
  return rules;
}

bool MethodRules::allows(std::string_view worker,
                         const std::vector<std::string>& identities) const {
  if (allows_everyone()) return true;
  if (!worker.empty() && matches_any(workers_, worker)) return true;
  return std::any_of(identities.begin(), identities.end(), [this](const std::string& identity) {
    return matches_any(identities_, identity);
  });
}

}  // namespace sinew
