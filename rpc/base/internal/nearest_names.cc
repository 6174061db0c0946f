#include "sinew/rpc/base/internal/nearest_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/edit_distance.h"

namespace sinew::internal {
namespace {

// Names come from the network, and the distance takes the product of two lengths.
constexpr std::size_t kMostBytesCompared = 128;

}  // namespace

std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> known,
                                       std::size_t most) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  ranked.reserve(known.size());
  for (std::string& each : known) {
    const std::size_t how_far =
        edit_distance(name.substr(0, kMostBytesCompared),
                      std::string_view(each).substr(0, kMostBytesCompared), kMostBytesCompared);
    ranked.emplace_back(how_far, std::move(each));
  }
  const auto end = ranked.begin() + static_cast<std::ptrdiff_t>(std::min(most, ranked.size()));
  std::partial_sort(ranked.begin(), end, ranked.end());
  std::vector<std::string> nearest;
  for (auto each = ranked.begin(); each != end; ++each) nearest.push_back(std::move(each->second));
  return nearest;
}

std::string nearest_names_text(std::string_view name, const std::vector<std::string>& known,
                               std::size_t most) {
  if (known.empty()) return "none";
  const std::vector<std::string> nearest = nearest_names(name, known, most);
  std::string text = absl::StrJoin(nearest, ", ", [](std::string* out, const std::string& each) {
    absl::StrAppend(out, "'", printable(each, kMostBytesCompared), "'");
  });
  if (nearest.size() < known.size()) {
    absl::StrAppend(&text, " and ", known.size() - nearest.size(), " more");
  }
  return text;
}

}  // namespace sinew::internal
