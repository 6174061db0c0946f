#include "sinew/groups/internal/backend.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

std::unique_ptr<Backend> make_nccl_backend(const BackendRequest& request) {
  (void)request;
  throw RpcError(ErrorCode::kUnimplemented,
                 "the backend 'nccl' is not there: Sinew was built without NCCL, or with a "
                 "LibTorch without CUDA");
}

}  // namespace sinew::internal
