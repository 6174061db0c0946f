#include "sinew/groups/internal/backend.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

std::unique_ptr<Backend> make_gloo_backend(const BackendRequest& request) {
  (void)request;
  throw RpcError(ErrorCode::kUnimplemented,
                 "the backend 'gloo' is not there: Sinew was built without the headers of Gloo "
                 "(Debian: libgloo-dev)");
}

}  // namespace sinew::internal
