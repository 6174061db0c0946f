#include "sinew/optim/internal/owned_tensors.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

std::vector<OwnedTensors> by_owner(const std::vector<RRef<at::Tensor>>& tensors,
                                   absl::FunctionRef<std::string(std::size_t position)> name_of) {
  std::vector<OwnedTensors> owners;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].valid()) {
      throw RpcError(ErrorCode::kInvalidArgument,
                     absl::StrCat(name_of(i), " is an empty reference"));
    }
    auto at = std::find_if(owners.begin(), owners.end(), [&](const OwnedTensors& one) {
      return one.owner.incarnation == tensors[i].owner().incarnation;
    });
    if (at == owners.end()) at = owners.insert(owners.end(), {tensors[i].owner(), {}, {}});
    at->tensors.push_back(tensors[i]);
    at->positions.push_back(i);
  }
  return owners;
}

}  // namespace sinew::internal
