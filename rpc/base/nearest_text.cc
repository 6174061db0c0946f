#include "sinew/rpc/base/nearest_text.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace sinew {
namespace {

constexpr std::size_t kMaxBytes = 256;
constexpr std::size_t kMaxDistance = 8;

// Levenshtein's distance, or `most` + 1 if it is more. Cells further than that from the diagonal
// cannot be on the way, so they are left out.
std::size_t distance(std::string_view from, std::string_view to, std::size_t most) {
  if (std::max(from.size(), to.size()) - std::min(from.size(), to.size()) > most) return most + 1;
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t begin = i > most ? i - most : 0;
    const std::size_t end = std::min(to.size(), i + most + 1);
    std::size_t diagonal = row[begin];
    row[begin] = begin == 0 ? i + 1 : most + 1;
    for (std::size_t j = begin; j < end; ++j) {
      const std::size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      // What lies above the band has not been looked at in the row before.
      const std::size_t dropped = j == i + most ? most + 1 : diagonal + 1;
      row[j + 1] = std::min({changed, row[j] + 1, dropped});
    }
  }
  return std::min(row.back(), most + 1);
}

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
    const std::size_t found = same_name ? 1 : distance(text, candidate, most);
    if (found > most) continue;
    nearest = &candidate;
    if (found == 0) break;
    most = found - 1;
  }
  return nearest == nullptr ? std::nullopt : std::optional<std::string>(*nearest);
}

}  // namespace sinew
