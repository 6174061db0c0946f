#include "sinew/parallel/internal/module_parts.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <cstring>

#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sinew/parallel/internal/group_tensor.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel::internal {
namespace {

/// Weights of embeddings whose gradients are sparse.
absl::flat_hash_set<const c10::TensorImpl*> sparse_weights(const torch::nn::Module& module) {
  absl::flat_hash_set<const c10::TensorImpl*> found;
  for (const auto& one : module.modules()) {
    if (const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(one.get())) {
      if (embedding->options.sparse()) found.insert(embedding->weight.unsafeGetTensorImpl());
    } else if (const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(one.get())) {
      if (bag->options.sparse()) found.insert(bag->weight.unsafeGetTensorImpl());
    }
  }
  return found;
}

std::string line_or_none(const std::vector<std::string>& lines, std::size_t at) {
  return at < lines.size() ? lines[at] : "nothing more";
}

}  // namespace

ModuleParts parts_of(const torch::nn::Module& module) {
  ModuleParts parts;
  const auto sparse = sparse_weights(module);
  absl::flat_hash_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    if (!tensor.requires_grad()) {
      parts.fixed_parameters.push_back({item.key(), tensor});
      continue;
    }
    parts.parameters.push_back({item.key(), tensor});
    parts.sparse.push_back(sparse.contains(tensor.unsafeGetTensorImpl()));
  }
  for (const auto& item : module.named_buffers()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    parts.buffers.push_back({item.key(), tensor});
  }
  return parts;
}

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(named.size());
  for (const NamedTensor& one : named) tensors.push_back(one.tensor);
  return tensors;
}

std::string describe(const char* what, const NamedTensor& named) {
  const at::Tensor& tensor = named.tensor;
  return absl::StrFormat("%s '%s' %s [%s] strides [%s]", what, named.name,
                         c10::toString(tensor.scalar_type()), absl::StrJoin(tensor.sizes(), ", "),
                         absl::StrJoin(tensor.strides(), ", "));
}

std::vector<std::string> describe(const ModuleParts& parts) {
  std::vector<std::string> lines;
  for (const NamedTensor& one : parts.parameters) lines.push_back(describe("parameter", one));
  for (const NamedTensor& one : parts.fixed_parameters) {
    lines.push_back(describe("parameter without gradient", one));
  }
  for (const NamedTensor& one : parts.buffers) lines.push_back(describe("buffer", one));
  return lines;
}

void check_equal_on_all_ranks(const ProcessGroup& group, const char* whole,
                              const std::vector<std::string>& lines) {
  const std::string text = absl::StrJoin(lines, "\n");
  const auto own_bytes = static_cast<std::int64_t>(text.size());
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<at::Tensor> sizes;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    sizes.push_back(group_tensor(group, at::zeros({1}, at::kLong)));
  }
  group.all_gather(sizes, group_tensor(group, at::full({1}, own_bytes, at::kLong)));
  std::int64_t most_bytes = 1;
  for (const at::Tensor& size : sizes) most_bytes = std::max(most_bytes, size.item<std::int64_t>());

  const at::Tensor own = at::zeros({most_bytes}, at::kByte);
  std::memcpy(own.data_ptr(), text.data(), text.size());
  std::vector<at::Tensor> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    texts.push_back(group_tensor(group, at::empty({most_bytes}, at::kByte)));
  }
  group.all_gather(texts, group_tensor(group, own));
  for (at::Tensor& one : texts) one = one.cpu();
  const auto lines_of = [&](std::size_t rank) -> std::vector<std::string> {
    const auto bytes = static_cast<std::size_t>(sizes[rank].item<std::int64_t>());
    return absl::StrSplit(
        absl::string_view(static_cast<const char*>(texts[rank].data_ptr()), bytes), '\n');
  };
  const std::vector<std::string> first = lines_of(0);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    const std::vector<std::string> other = lines_of(rank);
    if (other == first) continue;
    const auto both = std::mismatch(first.begin(), first.end(), other.begin(), other.end());
    const auto at = static_cast<std::size_t>(both.first - first.begin());
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("the ranks of a group have different %s: rank 0 has %s where "
                                   "rank %d has %s",
                                   whole, line_or_none(first, at), rank, line_or_none(other, at)));
  }
}

}  // namespace sinew::parallel::internal
