#include "dummy_set.h"

#include <algorithm>

namespace image_classifier {

std::int64_t DummySet::label(std::int64_t index) const {
  return SampleRandom(seed_, 0, static_cast<std::uint64_t>(index)).below(kClasses);
}

void DummySet::fill(std::int64_t index, std::uint64_t epoch, float* values) const {
  SampleRandom random(seed_, epoch + 1, static_cast<std::uint64_t>(index));
  // From -2 to 2: a mean of 0 and a deviation of 1 or so.
  std::generate_n(values, shape().values(),
                  [&random] { return static_cast<float>(random.between(-2, 2)); });
}

DataSets dummy_sets(std::int64_t count, std::int64_t side, std::uint64_t seed) {
  const std::int64_t test = std::max<std::int64_t>(1, count / 10);
  return {"noise", std::make_shared<DummySet>(count, side, seed),
          std::make_shared<DummySet>(test, side, seed + 1), DummySet::kClasses};
}

}  // namespace image_classifier
