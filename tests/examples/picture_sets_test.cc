// Pictures in memory and noise, and who makes batches of them.

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/image_classifier/data/batch_loader.h"
#include "sinew/examples/image_classifier/data/dummy_set.h"
#include "sinew/examples/image_classifier/data/memory_set.h"

namespace image_classifier {
namespace {

examples::LabelledImages some_images(std::int64_t channels, std::int64_t side) {
  return {at::arange(4 * channels * side * side)
              .remainder(251)
              .to(at::kByte)
              .view({4, channels, side, side}),
          at::tensor({3, 1, 4, 1}, at::kLong)};
}

at::Tensor picture_of(const PictureSet& set, std::int64_t index, std::uint64_t epoch) {
  return set.batch({index}, epoch).pictures[0];
}

TEST(MemorySetTest, NormalizesWhatWasChosen) {
  const examples::LabelledImages images = some_images(1, 28);
  const MemorySet set(images, "MNIST", Use::kTraining, 1);
  const Batch batch = set.batch({2, 0}, 7);
  EXPECT_TRUE(at::equal(batch.labels, at::tensor({4, 3}, at::kLong)));
  const double pixel = images.pixels[2][0][5][6].item<double>();
  EXPECT_NEAR(batch.pictures[0][0][5][6].item<double>(), (pixel / 255 - 0.1307) / 0.3081, 1e-5);
}

TEST(MemorySetTest, AugmentsBySeedEpochAndNumberAlone) {
  const MemorySet set(some_images(3, 32), "CIFAR-10", Use::kTraining, 5);
  const MemorySet other_seed(some_images(3, 32), "CIFAR-10", Use::kTraining, 6);
  const at::Tensor once = set.batch({0, 1, 2, 3}, 9).pictures;
  const at::Tensor again = set.batch({3, 1}, 9).pictures;
  EXPECT_TRUE(at::equal(again[0], once[3]));
  EXPECT_TRUE(at::equal(again[1], once[1]));
  EXPECT_FALSE(at::equal(set.batch({0, 1, 2, 3}, 10).pictures, once));
  EXPECT_FALSE(at::equal(other_seed.batch({0, 1, 2, 3}, 9).pictures, once));
}

TEST(MemorySetTest, ShiftsAndMirrorsForTrainingOnly) {
  const MemorySet plain_set(some_images(3, 32), "CIFAR-10", Use::kEvaluation, 5);
  const at::Tensor plain = picture_of(plain_set, 0, 0);
  EXPECT_TRUE(at::equal(picture_of(plain_set, 0, 1), plain));
  const MemorySet set(some_images(3, 32), "CIFAR-10", Use::kTraining, 5);
  // Of 400 random changes, of 162 kinds, some leave the middle of a picture where it was, some
  // mirror it.
  bool same = false;
  bool mirrored = false;
  for (std::uint64_t epoch = 0; epoch < 400; ++epoch) {
    const at::Tensor changed = picture_of(set, 0, epoch);
    same = same || at::equal(changed, plain);
    mirrored = mirrored || at::equal(changed, plain.flip({2}));
  }
  EXPECT_TRUE(same);
  EXPECT_TRUE(mirrored);
}

TEST(DummySetTest, IsNoiseOfAThousandClasses) {
  const DataSets sets = dummy_sets(50, 16, 3);
  EXPECT_EQ(sets.train->count(), 50);
  EXPECT_EQ(sets.test->count(), 5);
  const at::Tensor picture = picture_of(*sets.train, 4, 0);
  EXPECT_EQ(picture.sizes(), at::IntArrayRef({3, 16, 16}));
  EXPECT_LT(picture.abs().max().item<double>(), 2.0001);
  EXPECT_NEAR(picture.mean().item<double>(), 0, 0.2);
  EXPECT_TRUE(at::equal(picture_of(*sets.train, 4, 0), picture));
  EXPECT_LT(sets.train->label(4), sets.classes);
}

// ---- The loader.

std::vector<BatchLoader::Chosen> chosen_of(std::int64_t count, std::int64_t batch) {
  std::vector<BatchLoader::Chosen> batches;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i % batch == 0) batches.emplace_back();
    batches.back().push_back((i * 7) % count);
  }
  return batches;
}

LoaderOptions with_workers(int workers) {
  LoaderOptions options;
  options.workers = workers;
  return options;
}

TEST(BatchLoaderTest, BatchesDoNotDependOnThreads) {
  const DummySet set(46, 8, 1);
  std::vector<Batch> expected;
  for (const BatchLoader::Chosen& chosen : chosen_of(46, 5)) {
    expected.push_back(set.batch(chosen, 3));
  }
  for (const int workers : {0, 1, 3}) {
    BatchLoader loader(set, with_workers(workers));
    loader.start(3, chosen_of(46, 5));
    for (const Batch& one : expected) {
      const Batch made = loader.next();
      EXPECT_TRUE(at::equal(made.pictures, one.pictures)) << workers;
      EXPECT_TRUE(at::equal(made.labels, one.labels)) << workers;
    }
    EXPECT_THROW(loader.next(), std::logic_error);
  }
}

TEST(BatchLoaderTest, BeginsAnewInTheMiddle) {
  const DummySet set(40, 8, 1);
  for (const int workers : {0, 3}) {
    BatchLoader loader(set, with_workers(workers));
    loader.start(0, chosen_of(40, 4));
    loader.next();
    loader.start(1, {{5, 6}});
    EXPECT_TRUE(at::equal(loader.next().pictures, set.batch({5, 6}, 1).pictures));
    loader.start(2, chosen_of(40, 4));
  }
}

/// Counts what it makes; some of it fails.
class CountingSet final : public PictureSet {
 public:
  std::int64_t count() const override { return 100; }
  PictureShape shape() const override { return {1, 1, 1}; }
  std::int64_t label(std::int64_t index) const override { return index; }
  void fill(std::int64_t index, std::uint64_t, float* values) const override {
    most = std::max<std::int64_t>(most, index);
    if (index == 6) throw std::runtime_error("picture 6 is damaged");
    *values = static_cast<float>(index);
  }
  mutable std::atomic<std::int64_t> most = 0;
};

TEST(BatchLoaderTest, ThrowsAtTheBatchThatFailed) {
  const CountingSet set;
  for (const int workers : {0, 3}) {
    BatchLoader loader(set, with_workers(workers));
    loader.start(0, {{1}, {5}, {6}, {7}});
    EXPECT_EQ(loader.next().labels[0].item<std::int64_t>(), 1);
    EXPECT_EQ(loader.next().labels[0].item<std::int64_t>(), 5);
    try {
      loader.next();
      ADD_FAILURE();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "picture 6 is damaged");
    }
    EXPECT_EQ(loader.next().labels[0].item<std::int64_t>(), 7);
  }
}

TEST(BatchLoaderTest, ThreadsDoNotRunAwayFromWhoeverAsks) {
  const CountingSet set;
  LoaderOptions options = with_workers(2);
  options.ahead = 2;
  {
    BatchLoader loader(set, options);
    std::vector<BatchLoader::Chosen> batches;
    for (std::int64_t i = 10; i < 100; ++i) batches.push_back({i});
    loader.start(0, batches);
    for (std::int64_t i = 10; i < 20; ++i)
      EXPECT_EQ(loader.next().labels[0].item<std::int64_t>(), i);
  }
  // Four batches beyond the ten that were taken, at most.
  EXPECT_LE(set.most, 23);
}

}  // namespace
}  // namespace image_classifier
