#include "sinew/rpc/base/internal/slurm_lists.h"

#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "sinew/rpc/base/internal/written_values.h"

namespace sinew::internal {
namespace {

constexpr std::int64_t kMostNodes = std::numeric_limits<std::int64_t>::max();

std::int64_t saturated_product(std::int64_t a, std::int64_t b) {
  return a > kMostNodes / b ? kMostNodes : a * b;
}

std::int64_t saturated_sum(std::int64_t a, std::int64_t b) {
  return a > kMostNodes - b ? kMostNodes : a + b;
}

// Digits alone; nullopt when it is none, or more than fits.
std::optional<std::int64_t> parse_number(absl::string_view text) {
  if (text.empty()) return std::nullopt;
  for (const char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return std::nullopt;
  }
  std::int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

// `1-3,07`: what stands between brackets. nullopt when it is not that.
std::optional<SlurmNodes> parse_ranges(absl::string_view text) {
  SlurmNodes ranges;
  for (const absl::string_view range : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    const std::optional<std::int64_t> first = parse_number(ends.first);
    const std::optional<std::int64_t> last =
        absl::StrContains(range, '-') ? parse_number(ends.second) : first;
    if (!first || !last || *last < *first) return std::nullopt;
    // As it is written: leading zeros belong to the name.
    if (ranges.count == 0) ranges.first = std::string(ends.first);
    ranges.count = saturated_sum(ranges.count, saturated_sum(*last - *first, 1));
  }
  return ranges;
}

// The end of the list's first entry: a comma outside of brackets.
std::size_t end_of_entry(absl::string_view text) {
  bool in_brackets = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',' && !in_brackets) return i;
    if (text[i] == '[') in_brackets = true;
    if (text[i] == ']') in_brackets = false;
  }
  return text.size();
}

// `rack[1-2]n[01-16]-ib`: names are all combinations.
std::optional<SlurmNodes> parse_entry(absl::string_view text) {
  if (text.empty()) return std::nullopt;
  SlurmNodes nodes;
  nodes.count = 1;
  while (!text.empty()) {
    const std::size_t open = text.find_first_of("[]");
    absl::StrAppend(&nodes.first, text.substr(0, open));
    if (open == absl::string_view::npos) break;
    const std::size_t close = text.find_first_of("[]", open + 1);
    const bool is_pair =
        text[open] == '[' && close != absl::string_view::npos && text[close] == ']';
    if (!is_pair) return std::nullopt;
    const std::optional<SlurmNodes> ranges = parse_ranges(text.substr(open + 1, close - open - 1));
    if (!ranges) return std::nullopt;
    nodes.first += ranges->first;
    nodes.count = saturated_product(nodes.count, ranges->count);
    text.remove_prefix(close + 1);
  }
  return nodes;
}

// `2` or `2(x3)`: tasks, and on how many nodes.
std::optional<std::pair<int, std::int64_t>> parse_tasks(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits("(x", 1));
  const std::optional<std::int64_t> tasks = parse_number(parts.first);
  std::optional<std::int64_t> nodes = 1;
  if (absl::StrContains(text, "(x")) {
    absl::string_view count = parts.second;
    nodes = absl::ConsumeSuffix(&count, ")") ? parse_number(count) : std::nullopt;
  }
  if (!tasks || !nodes || *tasks > std::numeric_limits<int>::max()) return std::nullopt;
  return std::pair(static_cast<int>(*tasks), *nodes);
}

}  // namespace

absl::StatusOr<SlurmNodes> parse_slurm_nodes(absl::string_view text) {
  SlurmNodes nodes;
  absl::string_view rest = text;
  for (bool more = true; more;) {
    const std::size_t end = end_of_entry(rest);
    const std::optional<SlurmNodes> entry = parse_entry(rest.substr(0, end));
    if (!entry) {
      return absl::InvalidArgumentError(
          absl::StrCat("the list of nodes ", quoted(text),
                       " is none as Slurm writes it, such as 'n[1-3,07],login'"));
    }
    if (nodes.count == 0) nodes.first = entry->first;
    nodes.count = saturated_sum(nodes.count, entry->count);
    more = end < rest.size();
    rest.remove_prefix(more ? end + 1 : end);
  }
  const absl::Status is_host =
      check_host(absl::StrCat("the first node of the list ", quoted(text)), nodes.first);
  if (!is_host.ok()) return is_host;
  return nodes;
}

absl::StatusOr<int> parse_slurm_tasks_of_node(absl::string_view text, int node) {
  std::int64_t passed = 0;
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    const std::optional<std::pair<int, std::int64_t>> tasks = parse_tasks(entry);
    if (!tasks) {
      return absl::InvalidArgumentError(
          absl::StrCat("the list of tasks per node ", quoted(text),
                       " is none as Slurm writes it, such as '2(x3),1'"));
    }
    passed = saturated_sum(passed, tasks->second);
    if (node < passed) return tasks->first;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the list of tasks per node ", quoted(text), " has no node ", node));
}

}  // namespace sinew::internal
