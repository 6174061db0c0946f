#include "sinew/parallel/internal/module_parts.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
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

constexpr std::uint64_t kNoBytes = 14695981039346656037U;

/// FNV-1a, so that it is the same in all processes.
std::uint64_t add_bytes(std::uint64_t sum, const void* bytes, std::size_t size) {
  const auto* byte = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < size; ++i) sum = (sum ^ byte[i]) * 1099511628211U;
  return sum;
}

std::uint64_t checksum(const at::Tensor& tensor) {
  const at::Tensor bits = tensor.detach().cpu().contiguous();
  return add_bytes(kNoBytes, bits.data_ptr(), bits.nbytes());
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

std::string changes_since(const ModuleParts& parts, const torch::nn::Module& module,
                          bool frozen_too) {
  absl::flat_hash_map<const c10::TensorImpl*, bool> known;
  for (const NamedTensor& one : parts.parameters) known[one.tensor.unsafeGetTensorImpl()] = true;
  for (const NamedTensor& one : parts.fixed_parameters) {
    known[one.tensor.unsafeGetTensorImpl()] = false;
  }
  std::vector<std::string> changes;
  const auto add = [&changes](const std::string& name, const char* what) {
    changes.push_back(absl::StrFormat("'%s' %s", name, what));
  };
  absl::flat_hash_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined()) continue;
    const auto found = known.find(tensor.unsafeGetTensorImpl());
    if (found == known.end()) {
      add(item.key(), "was added or replaced");
    } else if (seen.insert(found->first).second && tensor.requires_grad() != found->second) {
      if (tensor.requires_grad()) add(item.key(), "requires a gradient now");
      if (!tensor.requires_grad() && frozen_too) add(item.key(), "requires no gradient any more");
    }
  }
  if (seen.size() < known.size()) {
    for (const std::vector<NamedTensor>* kind : {&parts.parameters, &parts.fixed_parameters}) {
      for (const NamedTensor& one : *kind) {
        if (!seen.contains(one.tensor.unsafeGetTensorImpl()))
          add(one.name, "is not there any more");
      }
    }
  }
  return absl::StrJoin(changes, ", ");
}

std::vector<std::string> gather_texts(const ProcessGroup& group, const std::string& text) {
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
  std::vector<at::Tensor> gathered;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    gathered.push_back(group_tensor(group, at::empty({most_bytes}, at::kByte)));
  }
  group.all_gather(gathered, group_tensor(group, own));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const at::Tensor bytes = gathered[rank].cpu();
    texts.emplace_back(static_cast<const char*>(bytes.data_ptr()),
                       static_cast<std::size_t>(sizes[rank].item<std::int64_t>()));
  }
  return texts;
}

std::int64_t sample_of(const std::vector<NamedTensor>& tensors, std::int64_t turn) {
  constexpr std::size_t kMost = 32;
  const auto start = static_cast<std::size_t>(turn) * kMost;
  std::uint64_t sum = kNoBytes;
  for (std::size_t i = 0; i < std::min(kMost, tensors.size()); ++i) {
    const at::Tensor& one = tensors[(start + i) % tensors.size()].tensor;
    if (!one.is_cpu() || one.numel() == 0) continue;
    // Of those with gaps the first value: memory between values belongs to no tensor.
    const std::size_t at = one.is_non_overlapping_and_dense()
                               ? (start / 7 + i) % static_cast<std::size_t>(one.numel())
                               : 0;
    const std::size_t bytes = one.element_size();
    sum = add_bytes(sum, static_cast<const char*>(one.data_ptr()) + at * bytes, bytes);
  }
  return static_cast<std::int64_t>(sum);
}

void check_same_values(const ProcessGroup& group, const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> lines;
  for (const NamedTensor& one : tensors) {
    lines.push_back(absl::StrFormat("'%s' with checksum %x", one.name, checksum(one.tensor)));
  }
  try {
    check_equal_on_all_ranks(group, "values of parameters", lines);
  } catch (const RpcError& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    throw RpcError(
        ErrorCode::kFailedPrecondition,
        absl::StrCat("data-parallel ranks have parted: ", error.message(),
                     ". Each rank changes them by itself: in forward() (max_norm of an "
                     "embedding, weights set by hand; do it behind the step, alike on "
                     "all ranks), in an optimizer step with a rate, a clipping or a "
                     "scale of its own, or in an optimizer with state that made no steps "
                     "while its rank had run out of inputs in join() (give a "
                     "ZeroRedundancyOptimizer to join(), or make the optimizer anew), or in "
                     "one whose step has failed on some of them (load a checkpoint)"));
  }
}

void check_equal_on_all_ranks(const ProcessGroup& group, const char* whole,
                              const std::vector<std::string>& lines) {
  const std::vector<std::string> texts = gather_texts(group, absl::StrJoin(lines, "\n"));
  const auto lines_of = [&texts](std::size_t rank) {
    return std::vector<std::string>(absl::StrSplit(texts[rank], '\n'));
  };
  const std::vector<std::string> first = lines_of(0);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
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
