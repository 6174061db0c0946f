#include "bags.h"

#include <random>

#include "ATen/ops/cat.h"
#include "ATen/ops/tensor.h"

namespace ddp_rpc {
namespace {

constexpr std::uint64_t kMostWords = 10;
/// Of ten words so many are of the bag's class.
constexpr std::int64_t kOwnOfTen = 7;

}  // namespace

Bags Bags::make(std::int64_t count, std::int64_t seed) {
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  // The library's distributions differ from one implementation to the next.
  const auto below = [&random](std::uint64_t limit) {
    return static_cast<std::int64_t>(random() % limit);
  };
  std::vector<std::int64_t> words;
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> classes;
  for (std::int64_t bag = 0; bag < count; ++bag) {
    offsets.push_back(static_cast<std::int64_t>(words.size()));
    classes.push_back(below(kClasses));
    const std::int64_t length = 1 + below(kMostWords);
    for (std::int64_t i = 0; i < length; ++i) {
      std::int64_t word = below(kWords);
      // A word's class is its number modulo that of the classes.
      const bool own = below(10) < kOwnOfTen;
      if (own) word = below(kWords / kClasses) * kClasses + classes.back();
      words.push_back(word);
    }
  }
  return {at::tensor(words, at::kLong), at::tensor(offsets, at::kLong),
          at::tensor(classes, at::kLong)};
}

Bags Bags::joined(const std::vector<Bags>& parts) {
  std::vector<at::Tensor> words;
  std::vector<at::Tensor> offsets;
  std::vector<at::Tensor> classes;
  std::int64_t before = 0;
  for (const Bags& part : parts) {
    words.push_back(part.words);
    offsets.push_back(part.offsets + before);
    classes.push_back(part.classes);
    before += part.words.numel();
  }
  return {at::cat(words), at::cat(offsets), at::cat(classes)};
}

Bags Bags::of_step(std::int64_t count, std::int64_t seed, std::int64_t trainer, std::int64_t step) {
  return make(count, (seed * 1000 + trainer) * 1'000'000 + step);
}

}  // namespace ddp_rpc
