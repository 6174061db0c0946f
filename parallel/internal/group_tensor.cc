#include "sinew/parallel/internal/group_tensor.h"

#include "sinew/groups/internal/c10d_access.h"

namespace sinew::parallel::internal {

at::Tensor group_tensor(const ProcessGroup& group, const at::Tensor& tensor) {
  return tensor.to(c10::Device(sinew::internal::any_device_of(group)));
}

}  // namespace sinew::parallel::internal
