#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"

namespace image_classifier {

/// What a picture becomes on its way to the network.
enum class Use {
  /// It is changed a little each time.
  kTraining,
  /// It is always the same.
  kEvaluation,
};

struct PictureShape {
  std::int64_t channels = 3;
  std::int64_t height = 224;
  std::int64_t width = 224;

  std::int64_t values() const { return channels * height * width; }
};

struct Batch {
  /// {count, channels, height, width}, floats with mean 0 and deviation 1 or so.
  at::Tensor pictures;
  /// {count}
  at::Tensor labels;
};

/// Random numbers for one sample in one epoch: they depend on nothing else, so that neither the
/// number of ranks nor that of threads changes a picture. SplitMix64 (Steele et al., 2014): the
/// distributions of the standard library differ from one implementation to the next.
class SampleRandom {
 public:
  SampleRandom(std::uint64_t seed, std::uint64_t epoch, std::uint64_t index);

  std::uint64_t next();
  /// From 0 to `limit` - 1.
  std::int64_t below(std::int64_t limit);
  /// From `low` to `high`.
  double between(double low, double high);

 private:
  std::uint64_t state_;
};

/// Labelled pictures, ready for the network. Thread-safe.
class PictureSet {
 public:
  virtual ~PictureSet() = default;

  virtual std::int64_t count() const = 0;
  /// All pictures have it.
  virtual PictureShape shape() const = 0;
  virtual std::int64_t label(std::int64_t index) const = 0;
  /// Writes shape().values() floats. Throws std::runtime_error that names the file which cannot be
  /// used.
  virtual void fill(std::int64_t index, std::uint64_t epoch, float* values) const = 0;

  /// A line for each picture, in their order, where each rank reads files of its own; else empty.
  virtual std::string listing() const { return {}; }

  Batch batch(const std::vector<std::int64_t>& chosen, std::uint64_t epoch) const;
};

/// What a training needs.
struct DataSets {
  std::string name;
  std::shared_ptr<const PictureSet> train;
  std::shared_ptr<const PictureSet> test;
  std::int64_t classes = 10;
};

}  // namespace image_classifier
