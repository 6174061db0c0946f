#include "sinew/examples/common/labelled_images.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "ATen/ops/cat.h"
#include "ATen/ops/empty.h"

namespace examples {
namespace {

namespace fs = std::filesystem;

// More than any set of small pictures has; a damaged header is not to ask for all memory.
constexpr std::int64_t kMostBytes = std::int64_t{2} << 30;
constexpr std::uint8_t kIdxUnsignedByte = 0x08;

// Reads plain files as well as gzipped ones: zlib tells them apart.
class ImageFile {
 public:
  explicit ImageFile(const fs::path& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) fail("it cannot be opened: " + std::string(std::strerror(errno)));
  }

  void read(void* target, std::int64_t bytes) {
    auto* at = static_cast<std::uint8_t*>(target);
    while (bytes > 0) {
      const std::int64_t part = std::min<std::int64_t>(bytes, std::numeric_limits<int>::max());
      const int got = gzread(file_.get(), at, static_cast<unsigned>(part));
      if (got < 0) fail(error());
      if (got == 0) fail("it ends too early: " + std::to_string(bytes) + " bytes are missing");
      at += got;
      bytes -= got;
    }
  }

  /// Also finds what zlib tells only at the end, like a wrong checksum.
  void expect_end() {
    std::uint8_t more = 0;
    const int got = gzread(file_.get(), &more, 1);
    if (got < 0) fail(error());
    if (got > 0) fail("it goes on after what its header announces");
    int status = Z_OK;
    gzerror(file_.get(), &status);
    if (status != Z_OK) fail(error());
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error(path_.string() + ": " + why);
  }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };

  std::string error() const {
    int status = Z_OK;
    const char* text = gzerror(file_.get(), &status);
    return status == Z_ERRNO ? std::string(std::strerror(errno)) : std::string(text);
  }

  const fs::path path_;
  std::unique_ptr<std::remove_pointer_t<gzFile>, Close> file_;
};

/// The first of the names under which a file is found; empty: none.
fs::path find_file(const fs::path& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    for (const char* ending : {"", ".gz"}) {
      const fs::path path = folder / (name + ending);
      if (fs::is_regular_file(path)) return path;
    }
  }
  return {};
}

/// An IDX file: two zero bytes, the type, the number of sizes, the sizes (big endian), the values.
at::Tensor read_idx(const fs::path& path, std::size_t dimensions) {
  ImageFile file(path);
  std::uint8_t magic[4];
  file.read(magic, sizeof(magic));
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != kIdxUnsignedByte || magic[3] != dimensions) {
    file.fail("it is no IDX file of bytes with " + std::to_string(dimensions) +
              (dimensions == 1 ? " dimension" : " dimensions"));
  }
  std::vector<std::int64_t> sizes;
  std::int64_t bytes = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    std::uint8_t size[4];
    file.read(size, sizeof(size));
    sizes.push_back(std::int64_t{size[0]} << 24 | size[1] << 16 | size[2] << 8 | size[3]);
    if (sizes.back() == 0) file.fail("it is empty: one of its sizes is 0");
    if (sizes.back() > kMostBytes / bytes) file.fail("its header announces more than 2 GiB");
    bytes *= sizes.back();
  }
  at::Tensor values = at::empty(sizes, at::kByte);
  file.read(values.data_ptr(), bytes);
  file.expect_end();
  return values;
}

void check_labels(const at::Tensor& labels, const fs::path& path) {
  const std::int64_t highest = labels.max().item<std::int64_t>();
  if (highest < ImageFolder::kClasses) return;
  throw std::runtime_error(path.string() + ": it has the label " + std::to_string(highest) +
                           ", and there are " + std::to_string(ImageFolder::kClasses) + " classes");
}

fs::path mnist_file(const fs::path& folder, const std::string& name, int dimensions) {
  // Some who pass the set on write a point for the second dash.
  const std::string type = "idx" + std::to_string(dimensions) + "-ubyte";
  const fs::path path = find_file(folder, {name + "-" + type, name + "." + type});
  if (path.empty()) {
    throw std::runtime_error("there is no " + name + "-" + type + " (or " + name + "-" + type +
                             ".gz) in " + folder.string());
  }
  return path;
}

LabelledImages read_mnist(const fs::path& folder, const std::string& part) {
  const fs::path images_file = mnist_file(folder, part + "-images", 3);
  const fs::path labels_file = mnist_file(folder, part + "-labels", 1);
  const at::Tensor images = read_idx(images_file, 3);
  const at::Tensor labels = read_idx(labels_file, 1);
  if (images.size(0) != labels.size(0)) {
    throw std::runtime_error(images_file.string() + " has " + std::to_string(images.size(0)) +
                             " pictures, and " + labels_file.string() + " " +
                             std::to_string(labels.size(0)) + " labels");
  }
  check_labels(labels, labels_file);
  return {images.unsqueeze(1), labels.to(at::kLong)};
}

/// Rows of a label and 3 times 32 times 32 bytes, to the end of the file.
LabelledImages read_cifar10(const std::vector<fs::path>& paths) {
  constexpr std::int64_t kRows = 10'000;
  constexpr std::int64_t kRowBytes = 1 + 3 * 32 * 32;
  std::vector<at::Tensor> pixels;
  std::vector<at::Tensor> labels;
  for (const fs::path& path : paths) {
    ImageFile file(path);
    const at::Tensor rows = at::empty({kRows, kRowBytes}, at::kByte);
    file.read(rows.data_ptr(), rows.numel());
    file.expect_end();
    labels.push_back(rows.select(1, 0));
    check_labels(labels.back(), path);
    pixels.push_back(rows.narrow(1, 1, kRowBytes - 1).reshape({kRows, 3, 32, 32}));
  }
  return {at::cat(pixels), at::cat(labels).to(at::kLong)};
}

fs::path cifar10_file(const fs::path& folder, const std::string& name) {
  const fs::path path = find_file(folder, {name});
  if (path.empty()) {
    throw std::runtime_error("there is no " + name + " (or " + name + ".gz) in " + folder.string());
  }
  return path;
}

ImageFolder load_cifar10(const fs::path& folder) {
  std::vector<fs::path> train;
  for (int batch = 1; batch <= 5; ++batch) {
    train.push_back(cifar10_file(folder, "data_batch_" + std::to_string(batch) + ".bin"));
  }
  return {"CIFAR-10", read_cifar10(train), read_cifar10({cifar10_file(folder, "test_batch.bin")})};
}

}  // namespace

ImageFolder load_images(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw std::runtime_error("there is no folder " + folder.string() +
                             " with pictures; tools/fetch-mnist gets some");
  }
  if (!find_file(folder, {"data_batch_1.bin", "test_batch.bin"}).empty()) {
    return load_cifar10(folder);
  }
  return {"MNIST", read_mnist(folder, "train"), read_mnist(folder, "t10k")};
}

}  // namespace examples
