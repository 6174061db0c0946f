#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rref/rref.h"

namespace sinew::internal {

/// Those of a list of tensors that one worker owns.
struct OwnedTensors {
  WorkerInfo owner;
  /// In the order of the list.
  std::vector<RRef<at::Tensor>> tensors;
  /// Where each of them stands in the list.
  std::vector<std::size_t> positions;
};

/// Splits a list by owners, those in the order of their first tensors. Throws RpcError
/// kInvalidArgument for an empty reference, which `name_of` its position names: "parameter 2".
std::vector<OwnedTensors> by_owner(const std::vector<RRef<at::Tensor>>& tensors,
                                   absl::FunctionRef<std::string(std::size_t position)> name_of);

}  // namespace sinew::internal
