#pragma once

#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/groups/process_group.h"

namespace torch::nn {
class Module;
}

namespace sinew::parallel::internal {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// The tensors of a module, each once, under its first name.
struct ModuleParts {
  /// Those that require a gradient.
  std::vector<NamedTensor> parameters;
  /// Of each of these, whether its gradients are sparse.
  std::vector<bool> sparse;
  std::vector<NamedTensor> fixed_parameters;
  std::vector<NamedTensor> buffers;
};
ModuleParts parts_of(const torch::nn::Module& module);

/// What is no longer as it was when `parts` were made of the module: sentences that name parameters
/// and buffers which were added, replaced or taken away, or no longer (`frozen_too`), or now,
/// require a gradient. Empty: nothing.
std::string changes_since(const ModuleParts& parts, const torch::nn::Module& module,
                          bool frozen_too);

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named);

/// A line for each part: its name, type, sizes and strides.
std::vector<std::string> describe(const ModuleParts& parts);
std::string describe(const char* what, const NamedTensor& named);

/// The text of each rank, on all ranks. Blocks.
std::vector<std::string> gather_texts(const ProcessGroup& group, const std::string& own);

/// A number for values of some of the tensors, in the order of `turn`: other ones in each. Those
/// that are not in the memory of the host count as nothing.
std::int64_t sample_of(const std::vector<NamedTensor>& tensors, std::int64_t turn);

/// Throws RpcError kFailedPrecondition on all ranks when tensors of some do not have the bits of
/// rank 0's. The text names the first one, the ranks, and what may have made them differ. Blocks.
void check_same_values(const ProcessGroup& group, const std::vector<NamedTensor>& tensors);

/// Blocks until all ranks have called it. Throws RpcError kInvalidArgument on all ranks when the
/// lines of some are not those of rank 0: the text names the first one that differs. `whole`: what
/// the lines describe.
void check_equal_on_all_ranks(const ProcessGroup& group, const char* whole,
                              const std::vector<std::string>& lines);

}  // namespace sinew::parallel::internal
