#include "picture_set.h"

#include "ATen/ops/empty.h"

namespace image_classifier {
namespace {

std::uint64_t mixed(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

}  // namespace

SampleRandom::SampleRandom(std::uint64_t seed, std::uint64_t epoch, std::uint64_t index)
    : state_(mixed(mixed(mixed(seed + kStep) + epoch + kStep) + index + kStep)) {}

std::uint64_t SampleRandom::next() { return mixed(state_ += kStep); }

std::int64_t SampleRandom::below(std::int64_t limit) {
  return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(limit));
}

double SampleRandom::between(double low, double high) {
  constexpr double kUnit = 1.0 / 9007199254740992.0;
  return low + (high - low) * static_cast<double>(next() >> 11) * kUnit;
}

Batch PictureSet::batch(const std::vector<std::int64_t>& chosen, std::uint64_t epoch) const {
  const auto count = static_cast<std::int64_t>(chosen.size());
  const PictureShape of_one = shape();
  Batch batch;
  batch.pictures = at::empty({count, of_one.channels, of_one.height, of_one.width}, at::kFloat);
  batch.labels = at::empty({count}, at::kLong);
  auto* values = batch.pictures.data_ptr<float>();
  auto* labels = batch.labels.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = chosen[static_cast<std::size_t>(i)];
    fill(index, epoch, values + i * of_one.values());
    labels[i] = label(index);
  }
  return batch;
}

}  // namespace image_classifier
