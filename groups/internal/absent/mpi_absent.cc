#include "sinew/groups/internal/backend.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

[[noreturn]] void refuse() {
  throw RpcError(ErrorCode::kUnimplemented,
                 "the backend 'mpi' is not there: Sinew was built without MPI (SINEW_WITH_MPI)");
}

}  // namespace

std::unique_ptr<Backend> make_mpi_backend(const BackendRequest& request) {
  (void)request;
  refuse();
}

MpiPlace mpi_place(std::chrono::milliseconds timeout) {
  (void)timeout;
  refuse();
}

}  // namespace sinew::internal
