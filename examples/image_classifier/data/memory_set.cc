#include "memory_set.h"

#include <utility>

namespace image_classifier {
namespace {
constexpr std::int64_t kShift = 4;
constexpr const char* kCifar = "CIFAR-10";
}  // namespace

MemorySet::MemorySet(examples::LabelledImages images, const std::string& name, Use use,
                     std::uint64_t seed)
    : images_{images.pixels.contiguous(), images.labels.contiguous()},
      augments_(use == Use::kTraining && name == kCifar),
      seed_(seed) {
  const bool cifar = name == kCifar;
  means_ = cifar ? std::vector<float>{0.4914F, 0.4822F, 0.4465F} : std::vector<float>{0.1307F};
  deviations_ = cifar ? std::vector<float>{0.2470F, 0.2435F, 0.2616F} : std::vector<float>{0.3081F};
}

PictureShape MemorySet::shape() const {
  return {images_.pixels.size(1), images_.pixels.size(2), images_.pixels.size(3)};
}

std::int64_t MemorySet::label(std::int64_t index) const {
  return images_.labels.data_ptr<std::int64_t>()[index];
}

void MemorySet::fill(std::int64_t index, std::uint64_t epoch, float* values) const {
  const PictureShape size = shape();
  SampleRandom random(seed_, epoch, static_cast<std::uint64_t>(index));
  const std::int64_t down = augments_ ? random.below(2 * kShift + 1) - kShift : 0;
  const std::int64_t right = augments_ ? random.below(2 * kShift + 1) - kShift : 0;
  const bool mirrored = augments_ && random.below(2) == 1;
  const auto* pixels = images_.pixels.data_ptr<std::uint8_t>() + index * size.values();
  for (std::int64_t channel = 0; channel < size.channels; ++channel) {
    const float mean = means_[static_cast<std::size_t>(channel)];
    const float deviation = deviations_[static_cast<std::size_t>(channel)];
    for (std::int64_t y = 0; y < size.height; ++y) {
      for (std::int64_t x = 0; x < size.width; ++x) {
        const std::int64_t row = y + down;
        const std::int64_t column = (mirrored ? size.width - 1 - x : x) + right;
        const bool inside = row >= 0 && row < size.height && column >= 0 && column < size.width;
        // Around the picture there is what it is on the average.
        *values++ = inside ? (static_cast<float>(pixels[row * size.width + column]) / 255 - mean) /
                                 deviation
                           : 0;
      }
    }
    pixels += size.height * size.width;
  }
}

DataSets memory_sets(const examples::ImageFolder& folder, std::uint64_t seed) {
  DataSets sets;
  sets.name = folder.name;
  sets.train = std::make_shared<MemorySet>(folder.train, folder.name, Use::kTraining, seed);
  sets.test = std::make_shared<MemorySet>(folder.test, folder.name, Use::kEvaluation, seed);
  sets.classes = examples::ImageFolder::kClasses;
  return sets;
}

}  // namespace image_classifier
