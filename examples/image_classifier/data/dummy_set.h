#pragma once

#include <cstdint>

#include "picture_set.h"

namespace image_classifier {

/// Noise, and labels by chance: for how fast a training is, without files.
class DummySet final : public PictureSet {
 public:
  static constexpr std::int64_t kClasses = 1000;

  DummySet(std::int64_t count, std::int64_t side, std::uint64_t seed)
      : count_(count), side_(side), seed_(seed) {}

  std::int64_t count() const override { return count_; }
  PictureShape shape() const override { return {3, side_, side_}; }
  std::int64_t label(std::int64_t index) const override;
  void fill(std::int64_t index, std::uint64_t epoch, float* values) const override;

 private:
  const std::int64_t count_;
  const std::int64_t side_;
  const std::uint64_t seed_;
};

/// `count` pictures for training and a tenth of that for evaluation.
DataSets dummy_sets(std::int64_t count, std::int64_t side, std::uint64_t seed);

}  // namespace image_classifier
