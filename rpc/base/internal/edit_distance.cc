#include "sinew/rpc/base/internal/edit_distance.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace sinew::internal {

// Cells further than `most` from the diagonal cannot be on the way, so they are left out.
std::size_t edit_distance(std::string_view from, std::string_view to, std::size_t most) {
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

}  // namespace sinew::internal
