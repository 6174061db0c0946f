#include "sinew/rpc/base/nearest_text.h"

#include <algorithm>
#include <cstddef>

#include "sinew/rpc/base/internal/edit_distance.h"

namespace sinew {
namespace {

constexpr std::size_t kMaxBytes = 256;
constexpr std::size_t kMaxDistance = 8;

bool ends_with_name(std::string_view text, std::string_view name) {
  constexpr std::string_view kScope = "::";
  if (name.empty() || text.size() < name.size() + kScope.size()) return false;
  const std::size_t at = text.size() - name.size();
  return text.substr(at) == name && text.substr(at - kScope.size(), kScope.size()) == kScope;
}

}  // namespace

std::optional<std::string> nearest_text(std::string_view text,
                                        const std::vector<std::string>& candidates) {
  if (text.size() > kMaxBytes) return std::nullopt;
  std::size_t most = std::min(kMaxDistance, std::max<std::size_t>(2, text.size() / 3));
  const std::string* nearest = nullptr;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxBytes) continue;
    const bool same_name = ends_with_name(candidate, text) || ends_with_name(text, candidate);
    const std::size_t found = same_name ? 1 : internal::edit_distance(text, candidate, most);
    if (found > most) continue;
    nearest = &candidate;
    if (found == 0) break;
    most = found - 1;
  }
  return nearest == nullptr ? std::nullopt : std::optional<std::string>(*nearest);
}

}  // namespace sinew
