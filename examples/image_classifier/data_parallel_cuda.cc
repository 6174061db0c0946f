// Built where LibTorch has CUDA.

#include <stdexcept>
#include <string>

#include "data_parallel.h"
#include "torch/nn/parallel/data_parallel.h"

namespace image_classifier {

at::Tensor data_parallel(const std::shared_ptr<ResNet>& network, const at::Tensor& pictures) {
  return torch::nn::parallel::data_parallel(network, pictures);
}

void check_data_parallel() {
  const auto gpus = torch::cuda::device_count();
  if (gpus >= 2) return;
  throw std::runtime_error("--mode dp needs several GPUs, and there " +
                           std::string(gpus == 1 ? "is one" : "are none") +
                           "; --mode ddp takes any number of processes");
}

}  // namespace image_classifier
