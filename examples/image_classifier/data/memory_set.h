#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "picture_set.h"
#include "sinew/examples/common/labelled_images.h"

namespace image_classifier {

/// MNIST or CIFAR-10. For training CIFAR-10's pictures are shifted by up to four pixels, and
/// mirrored, at random; digits are left as they are.
class MemorySet final : public PictureSet {
 public:
  /// `name` is that of the data set, whose mean and deviation are known.
  MemorySet(examples::LabelledImages images, const std::string& name, Use use, std::uint64_t seed);

  std::int64_t count() const override { return images_.count(); }
  PictureShape shape() const override;
  std::int64_t label(std::int64_t index) const override;
  void fill(std::int64_t index, std::uint64_t epoch, float* values) const override;

 private:
  /// Contiguous.
  examples::LabelledImages images_;
  const bool augments_;
  const std::uint64_t seed_;
  std::vector<float> means_;
  std::vector<float> deviations_;
};

DataSets memory_sets(const examples::ImageFolder& folder, std::uint64_t seed);

}  // namespace image_classifier
