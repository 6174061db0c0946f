#include "sinew/examples/common/labelled_images.h"

#include <zlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "image_files.h"
#include "sinew/examples/common/files.h"
#include "sinew/tests/support/temporary_folder.h"

namespace examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::idx_file;

constexpr const char* kImages = "train-images-idx3-ubyte";
constexpr const char* kLabels = "train-labels-idx1-ubyte";

class LabelledImagesTest : public ::testing::Test {
 protected:
  void SetUp() override { testing::write_mnist(folder_, 12, 5); }

  std::filesystem::path file(const std::string& name) const { return folder_ / name; }
  std::string error() const {
    try {
      load_images(folder_);
    } catch (const std::runtime_error& failure) {
      return failure.what();
    }
    return "no error";
  }
  void gzip(const std::string& name) const {
    const std::string content = read_file(file(name));
    const gzFile zipped = gzopen(file(name + ".gz").c_str(), "wb");
    ASSERT_EQ(gzwrite(zipped, content.data(), static_cast<unsigned>(content.size())),
              static_cast<int>(content.size()));
    gzclose(zipped);
    std::filesystem::remove(file(name));
  }
  void write_cifar10(const std::string& name, char label) const {
    std::string rows;
    for (int row = 0; row < 10'000; ++row) {
      rows.push_back(label);
      // Red, green, blue.
      for (const char colour : {1, 2, 3}) rows.append(1024, colour);
    }
    write_file(file(name), rows);
  }

  const sinew::testing::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(LabelledImagesTest, ReadsMnist) {
  const ImageFolder images = load_images(folder_);
  EXPECT_EQ(images.name, "MNIST");
  EXPECT_EQ(images.train.pixels.sizes(), at::IntArrayRef({12, 1, 28, 28}));
  EXPECT_EQ(images.train.labels.sizes(), at::IntArrayRef({12}));
  EXPECT_EQ(images.train.labels.scalar_type(), at::kLong);
  EXPECT_EQ(images.test.count(), 5);
  const std::string raw = read_file(file(kImages));
  // The header has 16 bytes.
  EXPECT_EQ(images.train.pixels[11][0][27][27].item<int>(), static_cast<unsigned char>(raw.back()));
  EXPECT_EQ(images.train.pixels[0][0][0][1].item<int>(), static_cast<unsigned char>(raw[17]));
}

TEST_F(LabelledImagesTest, ReadsGzippedFilesAndOtherNames) {
  const ImageFolder plain = load_images(folder_);
  gzip(kImages);
  std::filesystem::rename(file(kLabels), file("train-labels.idx1-ubyte"));
  const ImageFolder zipped = load_images(folder_);
  EXPECT_TRUE(at::equal(plain.train.pixels, zipped.train.pixels));
  EXPECT_TRUE(at::equal(plain.train.labels, zipped.train.labels));
}

TEST_F(LabelledImagesTest, ReadsCifar10) {
  for (char batch = 1; batch <= 5; ++batch) {
    write_cifar10("data_batch_" + std::to_string(batch) + ".bin", batch);
  }
  write_cifar10("test_batch.bin", 9);
  gzip("data_batch_3.bin");
  const ImageFolder images = load_images(folder_);
  EXPECT_EQ(images.name, "CIFAR-10");
  EXPECT_EQ(images.train.pixels.sizes(), at::IntArrayRef({50'000, 3, 32, 32}));
  EXPECT_EQ(images.train.labels[29'999].item<int>(), 3);
  EXPECT_EQ(images.train.pixels[49'999][1].min().item<int>(), 2);
  EXPECT_EQ(images.train.pixels[49'999][1].max().item<int>(), 2);
  EXPECT_EQ(images.test.labels[0].item<int>(), 9);
  std::filesystem::remove(file("data_batch_4.bin"));
  EXPECT_THAT(error(), HasSubstr("there is no data_batch_4.bin"));
}

TEST_F(LabelledImagesTest, NamesWhatIsMissing) {
  std::filesystem::remove(file(kLabels));
  EXPECT_THAT(error(),
              AllOf(HasSubstr("there is no train-labels-idx1-ubyte"), HasSubstr(folder_.string())));
  std::filesystem::remove_all(folder_);
  EXPECT_THAT(error(), AllOf(HasSubstr("there is no folder"), HasSubstr("tools/fetch-mnist")));
}

TEST_F(LabelledImagesTest, NamesWhatIsDamaged) {
  const std::string images = read_file(file(kImages));
  const std::string labels = read_file(file(kLabels));
  const auto error_of = [this](const char* name, const std::string& content) {
    const std::string whole = read_file(file(name));
    write_file(file(name), content);
    const std::string text = error();
    write_file(file(name), whole);
    return text;
  };
  EXPECT_THAT(error_of(kImages, ""), AllOf(HasSubstr(kImages), HasSubstr("ends too early")));
  EXPECT_THAT(error_of(kImages, labels), AllOf(HasSubstr(kImages), HasSubstr("no IDX file")));
  EXPECT_THAT(error_of(kImages, images.substr(0, images.size() - 1)),
              AllOf(HasSubstr(kImages), HasSubstr("1 bytes are missing")));
  EXPECT_THAT(error_of(kImages, images + "x"), HasSubstr("goes on after"));
  EXPECT_THAT(error_of(kImages, idx_file({0xffffffff, 0xffffffff, 0xffffffff}, "")),
              HasSubstr("more than 2 GiB"));
  EXPECT_THAT(error_of(kImages, idx_file({0, 28, 28}, "")), HasSubstr("it is empty"));
  EXPECT_THAT(error_of(kLabels, idx_file({11}, std::string(11, 1))),
              AllOf(HasSubstr("12 pictures"), HasSubstr("11 labels")));
  EXPECT_THAT(error_of(kLabels, idx_file({12}, std::string(12, 10))), HasSubstr("the label 10"));
}

TEST_F(LabelledImagesTest, FindsDamageWithinAGzippedFile) {
  gzip(kImages);
  std::string zipped = read_file(file("train-images-idx3-ubyte.gz"));
  write_file(file("train-images-idx3-ubyte.gz"), zipped.substr(0, zipped.size() / 2));
  EXPECT_THAT(error(), HasSubstr("train-images-idx3-ubyte.gz: "));
  EXPECT_THAT(error(), ::testing::Not(HasSubstr("no error")));
  zipped[zipped.size() - 7] ^= 1;  // the checksum
  write_file(file("train-images-idx3-ubyte.gz"), zipped);
  EXPECT_THAT(error(), HasSubstr("train-images-idx3-ubyte.gz: "));
}

}  // namespace
}  // namespace examples
