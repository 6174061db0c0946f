#include "sinew/parallel/internal/sparse_all_reduce.h"

#include <algorithm>
#include <vector>

#include "ATen/Functions.h"

namespace sinew::parallel::internal {
namespace {

std::vector<at::Tensor> gather(const ProcessGroup& group, const at::Tensor& own) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < group.size(); ++rank) all.push_back(at::empty_like(own));
  group.all_gather(all, own);
  return all;
}

}  // namespace

at::Tensor sparse_all_reduce(const ProcessGroup& group, const at::Tensor& sparse) {
  const at::Tensor own = sparse.coalesce();
  const std::int64_t count = own._nnz();
  std::vector<std::int64_t> counts;
  std::int64_t most = 0;
  for (const at::Tensor& one : gather(group, at::full({1}, count, own.indices().options()))) {
    counts.push_back(one.item<std::int64_t>());
    most = std::max(most, counts.back());
  }
  if (most == 0) return own;

  // All ranks send as many elements as the one that has most.
  std::vector<std::int64_t> value_sizes = own.values().sizes().vec();
  value_sizes[0] = most;
  const at::Tensor padded_values = at::zeros(value_sizes, own.values().options());
  padded_values.narrow(0, 0, count).copy_(own.values());
  const at::Tensor padded_indices = at::zeros({own.sparse_dim(), most}, own.indices().options());
  padded_indices.narrow(1, 0, count).copy_(own.indices());

  const std::vector<at::Tensor> all_indices = gather(group, padded_indices);
  const std::vector<at::Tensor> all_values = gather(group, padded_values);
  std::vector<at::Tensor> used_indices;
  std::vector<at::Tensor> used_values;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    used_indices.push_back(all_indices[rank].narrow(1, 0, counts[rank]));
    used_values.push_back(all_values[rank].narrow(0, 0, counts[rank]));
  }
  return at::sparse_coo_tensor(at::cat(used_indices, 1), at::cat(used_values, 0), own.sizes())
      .coalesce();
}

at::Tensor empty_sparse_gradient(const at::Tensor& weight) {
  std::vector<std::int64_t> value_sizes = weight.sizes().vec();
  value_sizes[0] = 0;
  return at::sparse_coo_tensor(at::empty({1, 0}, weight.options().dtype(at::kLong)),
                               at::empty(value_sizes, weight.options()), weight.sizes());
}

}  // namespace sinew::parallel::internal
