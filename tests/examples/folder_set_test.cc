// Folders of JPEG and PNG files as pictures for a network.

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "picture_files.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/image_classifier/data/batch_loader.h"
#include "sinew/examples/image_classifier/data/folder_set.h"
#include "sinew/tests/support/temporary_folder.h"

namespace image_classifier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

class FolderSetTest : public ::testing::Test {
 protected:
  static examples::testing::Painter plain(std::vector<std::uint8_t> pixel) {
    return [pixel = std::move(pixel)](std::int64_t, std::int64_t) { return pixel; };
  }

  const sinew::testing::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(FolderSetTest, FoldersInOrderAreClasses) {
  for (const char* name : {"b/2.png", "b/1.PNG", "a/1.png", "c/x.jpeg"}) {
    examples::testing::write_png(folder_ / name, 3, 3, 3, plain({1, 2, 3}));
  }
  examples::write_file(folder_ / "a" / "notes.txt", "no picture");
  const FolderSet set(folder_, 8, Use::kEvaluation, 1);
  EXPECT_EQ(set.classes(), std::vector<std::string>({"a", "b", "c"}));
  ASSERT_EQ(set.count(), 4);
  EXPECT_EQ(set.file(1), folder_ / "b" / "1.PNG");
  EXPECT_EQ(set.label(1), 1);
  EXPECT_EQ(set.label(3), 2);
  // Which is PNG, whatever its name.
  EXPECT_NO_THROW(set.batch({3}, 0));
}

TEST_F(FolderSetTest, ColoursAreWhatTheyAre) {
  examples::testing::write_png(folder_ / "a" / "1.png", 20, 30, 3, plain({255, 0, 51}));
  examples::testing::write_jpeg(folder_ / "a" / "2.jpg", 30, 20, plain({255, 0, 51}));
  examples::testing::write_png(folder_ / "a" / "3.png", 20, 20, 1, plain({51}));
  examples::testing::write_png(folder_ / "a" / "4.png", 20, 20, 4, plain({255, 255, 255, 0}));
  const FolderSet set(folder_, 8, Use::kEvaluation, 1);
  const at::Tensor pictures = set.batch({0, 1, 2, 3}, 0).pictures;
  const at::Tensor mean = at::tensor({0.485, 0.456, 0.406}, at::kFloat).view({1, 3, 1, 1});
  const at::Tensor deviation = at::tensor({0.229, 0.224, 0.225}, at::kFloat).view({1, 3, 1, 1});
  const at::Tensor bytes = (pictures * deviation + mean) * 255;
  const auto expect = [&](std::int64_t which, std::vector<double> colour, double tolerance) {
    const at::Tensor expected = at::tensor(colour, at::kFloat).view({3, 1, 1}).expand({3, 8, 8});
    EXPECT_TRUE(at::allclose(bytes[which], expected, 0, tolerance)) << which;
  };
  expect(0, {255, 0, 51}, 1e-3);
  expect(1, {255, 0, 51}, 4);
  expect(2, {51, 51, 51}, 1e-3);
  expect(3, {0, 0, 0}, 1e-3);
}

TEST_F(FolderSetTest, EvaluatesTheMiddle) {
  // Red grows to the right, green downwards: 32 pixels for 28 of the result.
  examples::testing::write_png(
      folder_ / "a" / "1.png", 40, 32, 3, [](std::int64_t x, std::int64_t y) {
        return std::vector<std::uint8_t>{static_cast<std::uint8_t>(5 * x),
                                         static_cast<std::uint8_t>(5 * y), 0};
      });
  const FolderSet set(folder_, 28, Use::kEvaluation, 1);
  const at::Tensor picture = set.batch({0}, 0).pictures[0];
  const auto byte = [&](int channel, int y, int x, double mean, double deviation) {
    return (picture[channel][y][x].item<double>() * deviation + mean) * 255;
  };
  // The square of 28 in the middle, pixel by pixel.
  EXPECT_NEAR(byte(0, 0, 0, 0.485, 0.229), 5 * 6, 0.01);
  EXPECT_NEAR(byte(0, 9, 27, 0.485, 0.229), 5 * 33, 0.01);
  EXPECT_NEAR(byte(1, 0, 0, 0.456, 0.224), 5 * 2, 0.01);
  EXPECT_NEAR(byte(1, 27, 4, 0.456, 0.224), 5 * 29, 0.01);
  EXPECT_TRUE(at::equal(set.batch({0}, 1).pictures[0], picture));
}

TEST_F(FolderSetTest, TrainsWithPartsAtRandom) {
  examples::testing::write_image_folder(folder_, 2, 4, 1);
  const FolderSet set(folder_ / "train", 16, Use::kTraining, 1);
  const at::Tensor once = set.batch({0, 1, 2, 3}, 5).pictures;
  EXPECT_TRUE(at::equal(set.batch({2}, 5).pictures[0], once[2]));
  EXPECT_FALSE(at::equal(set.batch({2}, 6).pictures[0], once[2]));
}

TEST_F(FolderSetTest, BatchesDoNotDependOnThreads) {
  examples::testing::write_image_folder(folder_, 3, 6, 1);
  const FolderSet set(folder_ / "train", 16, Use::kTraining, 4);
  const std::vector<BatchLoader::Chosen> batches = {{17, 3, 4}, {0, 1, 9}, {8, 12, 13}, {2, 5}};
  std::vector<at::Tensor> first;
  for (const int workers : {0, 1, 3}) {
    LoaderOptions options;
    options.workers = workers;
    BatchLoader loader(set, options);
    loader.start(2, batches);
    std::vector<at::Tensor> made;
    for (std::size_t i = 0; i < batches.size(); ++i) made.push_back(loader.next().pictures);
    if (workers == 0) first = made;
    for (std::size_t i = 0; i < made.size(); ++i)
      EXPECT_TRUE(at::equal(made[i], first[i])) << workers;
  }
}

TEST_F(FolderSetTest, BrokenFilesAreNamed) {
  examples::testing::write_image_folder(folder_, 1, 2, 1);
  const FolderSet set(folder_ / "train", 16, Use::kTraining, 1);
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::filesystem::path file = set.file(i);
    const std::string whole = examples::read_file(file);
    for (const std::string& bad : {std::string(), whole.substr(0, whole.size() / 2),
                                   whole.substr(0, 12), std::string("GIF89a, say")}) {
      examples::write_file(file, bad);
      EXPECT_THAT(error_of([&] { set.batch({i}, 0); }),
                  AllOf(HasSubstr(file.string()), HasSubstr("cannot be read as a picture")))
          << bad.size();
    }
    examples::write_file(file, whole);
    EXPECT_EQ(error_of([&] { set.batch({i}, 0); }), "no error");
  }
  std::filesystem::remove(set.file(0));
  EXPECT_THAT(error_of([&] { set.batch({0}, 0); }), HasSubstr(set.file(0).string()));
}

TEST_F(FolderSetTest, FoldersThatAreNoneAreNamed) {
  const auto open = [&] { return error_of([&] { folder_sets(folder_, 16, 1); }); };
  EXPECT_THAT(open(), AllOf(HasSubstr(folder_.string()), HasSubstr("has no train")));
  std::filesystem::create_directories(folder_ / "train");
  EXPECT_THAT(open(), HasSubstr("has no val"));
  std::filesystem::create_directories(folder_ / "test");
  EXPECT_THAT(open(), AllOf(HasSubstr("train has no folders"), HasSubstr("each class")));
  std::filesystem::create_directories(folder_ / "train" / "cat");
  EXPECT_THAT(open(), HasSubstr("cat has no pictures"));
  examples::testing::write_png(folder_ / "train" / "cat" / "1.png", 3, 3, 3, plain({1, 2, 3}));
  examples::testing::write_png(folder_ / "test" / "dog" / "1.png", 3, 3, 3, plain({1, 2, 3}));
  EXPECT_THAT(open(), HasSubstr("the class 'cat' is in " + (folder_ / "train").string()));
  examples::testing::write_png(folder_ / "test" / "cat" / "1.png", 3, 3, 3, plain({1, 2, 3}));
  EXPECT_THAT(open(), HasSubstr("the class 'dog' is in " + (folder_ / "test").string()));
  std::filesystem::remove_all(folder_ / "test" / "dog");
  const DataSets sets = folder_sets(folder_, 16, 1);
  EXPECT_EQ(sets.classes, 1);
}

// ---- Parts and sizes.

TEST(RandomPartTest, LiesInThePicture) {
  for (const auto& [width, height] : {std::pair(40, 30), std::pair(3, 400), std::pair(1, 1)}) {
    for (std::uint64_t i = 0; i < 200; ++i) {
      SampleRandom random(1, i, 0);
      const Box box = random_part(width, height, random);
      EXPECT_GE(box.left, 0);
      EXPECT_GE(box.top, 0);
      EXPECT_GT(box.width, 0);
      EXPECT_LE(box.left + box.width, width);
      EXPECT_LE(box.top + box.height, height);
    }
  }
}

TEST(ResampledTest, KeepsShrinksAndGrows) {
  Raster raster;
  raster.width = 4;
  raster.height = 2;
  for (int i = 0; i < 8; ++i)
    raster.bytes.insert(raster.bytes.end(), 3, static_cast<std::uint8_t>(10 * i));
  const std::vector<float> same = resampled(raster, {0, 0, 4, 2}, 4, 2);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(same[3 * i], 10 * static_cast<float>(i));
  // Triangles of twice a pixel's width: 1/8, 3/8, 3/8, 1/8 of four pixels within the picture.
  raster.height = 1;
  raster.bytes.resize(12);
  const std::vector<float> half = resampled(raster, {0, 0, 4, 1}, 2, 1);
  EXPECT_FLOAT_EQ(half[0], (3 * 0 + 3 * 10 + 1 * 20) / 7.0F);
  EXPECT_FLOAT_EQ(half[3], (1 * 10 + 3 * 20 + 3 * 30) / 7.0F);
  const std::vector<float> twice = resampled(raster, {1, 0, 2, 1}, 4, 1);
  EXPECT_FLOAT_EQ(twice[0], 7.5F);
  EXPECT_FLOAT_EQ(twice[3], 12.5F);
}

}  // namespace
}  // namespace image_classifier
