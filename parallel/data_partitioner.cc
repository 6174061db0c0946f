#include "sinew/parallel/data_partitioner.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "sinew/parallel/internal/permutation.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel {
namespace {

// What fractions like 1.0 / 3 add up to differs from 1 by a few units in the last place.
constexpr double kRounding = 1e-9;

void check(const std::vector<double>& fractions) {
  double sum = 0;
  for (std::size_t i = 0; i < fractions.size(); ++i) {
    // Written so that NaN is refused.
    if (!(fractions[i] >= 0 && fractions[i] <= 1)) {
      throw RpcError(
          ErrorCode::kInvalidArgument,
          absl::StrFormat("fraction %d of a DataPartitioner is %g, but it must be from 0 "
                          "to 1",
                          i, fractions[i]));
    }
    sum += fractions[i];
  }
  if (fractions.empty() || sum > 1 + kRounding) {
    throw RpcError(
        ErrorCode::kInvalidArgument,
        absl::StrFormat("the %d fractions of a DataPartitioner make %g, but there must be "
                        "at least one, and together they are 1 at most",
                        fractions.size(), sum));
  }
}

}  // namespace

DataPartitioner::DataPartitioner(std::size_t size, const std::vector<double>& fractions,
                                 std::uint64_t seed) {
  check(fractions);
  const std::vector<std::size_t> order = internal::permutation(size, seed, 0);
  std::size_t begin = 0;
  double sum = 0;
  for (const double fraction : fractions) {
    // Boundaries are rounded rather than sizes, so that nothing is lost between the parts.
    sum += fraction;
    const double boundary = std::floor(sum * static_cast<double>(size) + 0.5);
    const std::size_t end = std::clamp(static_cast<std::size_t>(boundary), begin, size);
    parts_.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(begin),
                        order.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
}

const std::vector<std::size_t>& DataPartitioner::part(std::size_t number) const {
  if (number < parts_.size()) return parts_[number];
  throw RpcError(ErrorCode::kOutOfRange,
                 absl::StrFormat("there is no part %d: a DataPartitioner has parts 0 to %d", number,
                                 parts_.size() - 1));
}

}  // namespace sinew::parallel
