#include "sinew/groups/internal/overlap.h"

#include <algorithm>
#include <cstdint>

#include "ATen/MemoryOverlap.h"

namespace sinew::internal {
namespace {

// Strides of views that programs make need one step for each dimension.
constexpr int kMostSteps = 1'000'000;

/// `stride` times a whole number from `least` to `most`.
struct Term {
  std::int64_t stride;
  std::int64_t least;
  std::int64_t most;
};

/// Whether a sum of terms can have a value.
class SumSearch {
 public:
  explicit SumSearch(std::vector<Term> terms) : terms_(std::move(terms)) {
    std::sort(terms_.begin(), terms_.end(),
              [](const Term& a, const Term& b) { return a.stride > b.stride; });
    rest_.resize(terms_.size() + 1);
    for (std::size_t at = terms_.size(); at-- > 0;) {
      const Term& term = terms_[at];
      rest_[at] = {rest_[at + 1].least + term.stride * term.least,
                   rest_[at + 1].most + term.stride * term.most};
    }
  }

  bool reaches(std::int64_t value) { return reaches(value, 0); }

 private:
  struct Range {
    std::int64_t least = 0;
    std::int64_t most = 0;
  };

  bool reaches(std::int64_t value, std::size_t at) {
    if (at == terms_.size()) return value == 0;
    const Term& term = terms_[at];
    const Range& rest = rest_[at + 1];
    // Larger strides come first, so that the rest leaves few numbers.
    const std::int64_t first = std::max(term.least, -floor(rest.most - value, term.stride));
    const std::int64_t last = std::min(term.most, floor(value - rest.least, term.stride));
    for (std::int64_t number = first; number <= last; ++number) {
      if (++steps_ > kMostSteps) return true;
      if (reaches(value - number * term.stride, at + 1)) return true;
    }
    return false;
  }

  static std::int64_t floor(std::int64_t value, std::int64_t by) {
    return value >= 0 ? value / by : -((-value + by - 1) / by);
  }

  std::vector<Term> terms_;
  /// Of the terms from each one on.
  std::vector<Range> rest_;
  int steps_ = 0;
};

/// Equal strides are one term, which saves steps.
void add_term(std::vector<Term>& terms, const Term& term) {
  for (Term& other : terms) {
    if (other.stride != term.stride) continue;
    other.least += term.least;
    other.most += term.most;
    return;
  }
  terms.push_back(term);
}

void add_places(std::vector<Term>& terms, const at::Tensor& tensor, int sign) {
  const auto bytes = static_cast<std::int64_t>(tensor.element_size());
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    const std::int64_t most = tensor.size(dim) - 1;
    if (most == 0 || tensor.stride(dim) == 0) continue;
    add_term(terms, {tensor.stride(dim) * bytes, sign < 0 ? -most : 0, sign < 0 ? 0 : most});
  }
  add_term(terms, {1, sign < 0 ? 1 - bytes : 0, sign < 0 ? 0 : bytes - 1});
}

struct Extent {
  std::intptr_t begin = 0;
  std::intptr_t end = 0;
};

Extent extent_of(const at::Tensor& tensor) {
  Extent extent;
  extent.begin = reinterpret_cast<std::intptr_t>(tensor.data_ptr());
  if (tensor.numel() == 0) return {extent.begin, extent.begin};
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  extent.end = extent.begin + (last + 1) * static_cast<std::int64_t>(tensor.element_size());
  return extent;
}

}  // namespace

bool overlaps_itself(const at::Tensor& tensor) {
  const at::MemOverlap known = at::has_internal_overlap(tensor);
  if (known != at::MemOverlap::TooHard || tensor.numel() <= 1) return known == at::MemOverlap::Yes;
  std::vector<Term> terms;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    const std::int64_t most = tensor.size(dim) - 1;
    if (most > 0) terms.push_back({tensor.stride(dim), -most, most});
  }
  std::sort(terms.begin(), terms.end(),
            [](const Term& a, const Term& b) { return a.stride > b.stride; });
  // Two elements that differ in this dimension, and in none with a larger stride.
  for (std::size_t at = 0; at < terms.size(); ++at) {
    std::vector<Term> differences(terms.begin() + static_cast<std::ptrdiff_t>(at), terms.end());
    differences.front().least = 1;
    if (SumSearch(std::move(differences)).reaches(0)) return true;
  }
  return false;
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  const Extent of_a = extent_of(a);
  const Extent of_b = extent_of(b);
  if (of_a.end <= of_b.begin || of_b.end <= of_a.begin) return false;
  if (a.numel() == 0 || b.numel() == 0) return false;
  std::vector<Term> terms;
  add_places(terms, a, 1);
  add_places(terms, b, -1);
  return SumSearch(std::move(terms)).reaches(of_b.begin - of_a.begin);
}

std::optional<std::pair<std::size_t, std::size_t>> first_that_share(
    const std::vector<at::Tensor>& tensors) {
  struct Entry {
    Extent extent;
    std::size_t number;
  };
  std::vector<Entry> entries;
  entries.reserve(tensors.size());
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    if (tensors[at].numel() > 0) entries.push_back({extent_of(tensors[at]), at});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.extent.begin < b.extent.begin; });
  std::optional<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t at = 0; at < entries.size(); ++at) {
    for (std::size_t next = at + 1; next < entries.size(); ++next) {
      if (entries[next].extent.begin >= entries[at].extent.end) break;
      const auto pair = std::minmax(entries[at].number, entries[next].number);
      if (found && *found <= std::make_pair(pair.first, pair.second)) continue;
      if (share_memory(tensors[pair.first], tensors[pair.second])) found = pair;
    }
  }
  return found;
}

}  // namespace sinew::internal
