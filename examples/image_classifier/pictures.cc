#include "pictures.h"

#include <random>
#include <utility>
#include <vector>

#include "ATen/ops/constant_pad_nd.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/tensor.h"

namespace image_classifier {
namespace {

constexpr std::int64_t kShift = 4;

at::Tensor by_channel(const std::vector<double>& values) {
  return at::tensor(values, at::kFloat).view({1, -1, 1, 1});
}

at::Tensor cropped_and_flipped(const at::Tensor& pictures, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::int64_t height = pictures.size(2);
  const std::int64_t width = pictures.size(3);
  const at::Tensor padded = at::constant_pad_nd(pictures, {kShift, kShift, kShift, kShift});
  std::vector<at::Tensor> changed;
  for (std::int64_t i = 0; i < pictures.size(0); ++i) {
    // The library's distributions differ from one implementation to the next.
    const auto below = [&random](std::uint64_t limit) {
      return static_cast<std::int64_t>(random() % limit);
    };
    at::Tensor picture = padded[i].narrow(1, below(2 * kShift + 1), height);
    picture = picture.narrow(2, below(2 * kShift + 1), width);
    changed.push_back(below(2) == 1 ? picture.flip({2}) : picture);
  }
  return at::stack(changed);
}

}  // namespace

Pictures::Pictures(examples::LabelledImages images, const std::string& set)
    : images_(std::move(images)) {
  const bool cifar = set == "CIFAR-10";
  mean_ =
      by_channel(cifar ? std::vector<double>{0.4914, 0.4822, 0.4465} : std::vector<double>{0.1307});
  deviation_ =
      by_channel(cifar ? std::vector<double>{0.2470, 0.2435, 0.2616} : std::vector<double>{0.3081});
}

Batch Pictures::batch(const at::Tensor& chosen, Augmentation augmentation,
                      std::uint64_t seed) const {
  at::Tensor pictures = images_.pixels.index_select(0, chosen).to(at::kFloat).div_(255);
  pictures.sub_(mean_).div_(deviation_);
  if (augmentation == Augmentation::kCropAndFlip) pictures = cropped_and_flipped(pictures, seed);
  return {pictures, images_.labels.index_select(0, chosen)};
}

Augmentation usual_augmentation(const std::string& set) {
  return set == "CIFAR-10" ? Augmentation::kCropAndFlip : Augmentation::kNone;
}

}  // namespace image_classifier
