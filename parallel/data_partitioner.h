#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sinew::parallel {

/// Divides a data set into parts of given sizes, at random: the same parts in every process that
/// does it with the same arguments.
///
///     const std::vector<double> equal(group.size(), 1.0 / group.size());
///     const sinew::parallel::DataPartitioner partitioner(data.size(), equal, 1234);
///     for (std::size_t index : partitioner.part(group.rank())) use(data[index]);
class DataPartitioner {
 public:
  /// `fractions` of `size` indexes; each at least 0, together at most 1. Where they make 1, each
  /// index is in one part. Parts differ from size * fraction by less than 1. Throws RpcError
  /// kInvalidArgument that names the fraction.
  DataPartitioner(std::size_t size, const std::vector<double>& fractions, std::uint64_t seed);

  std::size_t parts() const { return parts_.size(); }
  /// Throws RpcError kOutOfRange.
  const std::vector<std::size_t>& part(std::size_t number) const;

 private:
  std::vector<std::vector<std::size_t>> parts_;
};

}  // namespace sinew::parallel
