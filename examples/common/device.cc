#include "sinew/examples/common/device.h"

#include <stdexcept>

#include "sinew/rpc/base/launch_place.h"
#include "torch/cuda.h"

namespace examples {

int local_rank() {
  const auto place = sinew::find_launch_place();
  return place ? place->local_rank.value_or(0) : 0;
}

c10::Device device_of(const std::string& name) {
  if (name != "cuda") return c10::Device(name);
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  if (gpus == 0) {
    throw std::runtime_error(
        "--device cuda needs a GPU and a LibTorch with CUDA, and this process sees no GPU; "
        "--device cpu needs none");
  }
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank() % gpus)};
}

}  // namespace examples
