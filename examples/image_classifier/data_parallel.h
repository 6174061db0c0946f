#pragma once

#include <memory>

#include "models/resnet.h"

namespace image_classifier {

/// Runs a network on all GPUs of this process: LibTorch's data_parallel() copies it to each of
/// them, and gives each a part of the pictures. Throws std::runtime_error where this cannot be.
at::Tensor data_parallel(const std::shared_ptr<ResNet>& network, const at::Tensor& pictures);

/// Throws std::runtime_error that says why, unless there are several GPUs and a LibTorch for them.
void check_data_parallel();

}  // namespace image_classifier
