// Built where LibTorch has no CUDA, and so no data_parallel().

#include <stdexcept>

#include "data_parallel.h"

namespace image_classifier {

at::Tensor data_parallel(const std::shared_ptr<ResNet>&, const at::Tensor&) {
  check_data_parallel();
  return {};
}

void check_data_parallel() {
  throw std::runtime_error(
      "--mode dp needs several GPUs, and this program was built with a LibTorch without CUDA; "
      "--mode ddp takes any number of processes");
}

}  // namespace image_classifier
