#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

#include "ATen/core/ivalue.h"
#include "sinew/groups/process_group.h"
#include "sinew/rpc/base/future.h"

// What LibTorch's reducer takes, made of what there is here.
namespace sinew::parallel::internal {

/// The same outcome.
c10::intrusive_ptr<c10::ivalue::Future> to_c10(const Future<at::Tensor>& future);

/// Something that has been done, with its result.
c10::intrusive_ptr<c10d::Work> done_work(const at::Tensor& result);

/// Copies rank `root`'s tensors to all ranks, many with one operation. Blocks; throws RpcError.
void broadcast_all(const ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root);

}  // namespace sinew::parallel::internal
