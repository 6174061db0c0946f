#pragma once

#include <filesystem>
#include <string>

#include "torch/nn/module.h"

namespace image_classifier {

/// What becomes of the last layer of a network that takes over weights.
enum class Head {
  kFromFile,
  /// It stays as it was drawn, and is trained anew.
  kNew,
};

/// Gives `network` the parameters and buffers of a state dict that torch.save() has written in
/// Python, or sinew::optim::save_state_dict(). Throws std::runtime_error with the file's name: for
/// one that cannot be read, and, with their names, for what is missing, unexpected or of another
/// shape; then nothing has changed. Batches that norms have counted may be missing: old files do
/// not have them.
void load_weights(torch::nn::Module& network, const std::filesystem::path& file, Head head);

}  // namespace image_classifier
