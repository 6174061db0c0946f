#pragma once

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "sinew/examples/common/labelled_images.h"

namespace image_classifier {

struct Batch {
  /// {count, channels, height, width}, floats with mean 0 and deviation 1 or so.
  at::Tensor pictures;
  /// {count}
  at::Tensor labels;
};

/// Whether pictures are changed a little each time.
enum class Augmentation {
  kNone,
  /// Shifted by up to four pixels, and mirrored, at random.
  kCropAndFlip,
};

/// Makes batches of a set of pictures.
class Pictures {
 public:
  /// `set` is the name of the data set, whose mean and deviation are known.
  Pictures(examples::LabelledImages images, const std::string& set);

  std::int64_t count() const { return images_.count(); }
  std::int64_t channels() const { return images_.pixels.size(1); }
  /// `chosen`: {count} numbers of pictures. The same `seed` gives the same changes.
  Batch batch(const at::Tensor& chosen, Augmentation augmentation, std::uint64_t seed) const;

 private:
  const examples::LabelledImages images_;
  /// {1, channels, 1, 1}
  at::Tensor mean_;
  at::Tensor deviation_;
};

/// What is usual for a data set: digits are not mirrored.
Augmentation usual_augmentation(const std::string& set);

}  // namespace image_classifier
