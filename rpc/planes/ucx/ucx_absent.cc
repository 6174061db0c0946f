// What stands for the plane where the library is built without UCX.

#include "absl/status/status.h"
#include "sinew/rpc/planes/ucx/ucx_plane.h"

namespace sinew::internal {

absl::StatusOr<std::shared_ptr<PullPlane>> make_ucx_plane(const UcxOptions&) {
  return absl::UnimplementedError("this library was built without UCX (SINEW_WITH_UCX)");
}

}  // namespace sinew::internal
