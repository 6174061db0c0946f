#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ATen/core/Tensor.h"

namespace examples {

/// Pictures and what is on them.
struct LabelledImages {
  /// {count, channels, height, width}, bytes.
  at::Tensor pixels;
  /// {count}, numbers of classes from 0, kLong.
  at::Tensor labels;

  std::int64_t count() const { return labels.size(0); }
};

/// A data set of pictures of ten classes, as its files have it.
struct ImageFolder {
  /// "MNIST" or "CIFAR-10".
  std::string name;
  LabelledImages train;
  LabelledImages test;

  static constexpr std::int64_t kClasses = 10;
};

/// Reads MNIST's four IDX files (`train-images-idx3-ubyte`, ...) or CIFAR-10's six binary ones
/// (`data_batch_1.bin`, ...), whichever `folder` has; each may be gzipped and end in `.gz`. Throws
/// std::runtime_error that names the file which is missing or damaged, and says how.
ImageFolder load_images(const std::filesystem::path& folder);

}  // namespace examples
