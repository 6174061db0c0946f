#include "sinew/launch/ctl/columns.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

std::string as_columns(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::vector<std::string>> cells = lines;
  std::vector<std::size_t> widths;
  for (std::vector<std::string>& line : cells) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      line[i] = printable(line[i], 512);
      std::replace(line[i].begin(), line[i].end(), '\n', ' ');
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], line[i].size());
    }
  }
  std::string text;
  for (const std::vector<std::string>& line : cells) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const bool is_last = i + 1 == line.size();
      absl::StrAppend(&text, line[i],
                      is_last ? "\n" : std::string(widths[i] - line[i].size() + 2, ' '));
    }
  }
  return text;
}

std::string cut_text(const std::string& text) { return printable(text, 256); }

std::string time_text(std::uint64_t us) {
  const double s = static_cast<double>(us) * 1e-6;
  if (us < 1000) return absl::StrCat(us, " us");
  if (us < 1000000) return absl::StrFormat("%.3g ms", s * 1e3);
  if (us < 60000000) return absl::StrFormat("%.3g s", s);
  const auto minutes = us / 60000000;
  if (minutes < 60) return absl::StrCat(minutes, " min ", us / 1000000 % 60, " s");
  if (minutes < 24 * 60) return absl::StrCat(minutes / 60, " h ", minutes % 60, " min");
  return absl::StrCat(minutes / 60 / 24, " d ", minutes / 60 % 24, " h");
}

std::string size_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double size = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; size >= 1024 && unit < 3; ++unit) size /= 1024;
  return absl::StrFormat("%.3g %s", size, kUnits[unit]);
}

}  // namespace sinew::internal
