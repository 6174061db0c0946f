#include "image_files.h"

#include <random>

#include "sinew/examples/common/files.h"

namespace examples::testing {
namespace {

constexpr std::uint32_t kSide = 28;

void write_part(const std::filesystem::path& folder, const std::string& part, std::uint32_t count,
                std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string pixels;
  std::string labels;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::uint32_t>(random() % 10);
    labels.push_back(static_cast<char>(label));
    for (std::uint32_t row = 0; row < kSide; ++row) {
      const bool bar = row / 2 == label + 2;
      for (std::uint32_t column = 0; column < kSide; ++column) {
        pixels.push_back(static_cast<char>(random() % 100 + (bar ? 150 : 0)));
      }
    }
  }
  write_file(folder / (part + "-images-idx3-ubyte"), idx_file({count, kSide, kSide}, pixels));
  write_file(folder / (part + "-labels-idx1-ubyte"), idx_file({count}, labels));
}

}  // namespace

std::string idx_file(std::initializer_list<std::uint32_t> sizes, const std::string& values) {
  std::string file = {0, 0, 8, static_cast<char>(sizes.size())};
  for (const std::uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) file.push_back(static_cast<char>(size >> shift));
  }
  return file + values;
}

void write_mnist(const std::filesystem::path& folder, std::uint32_t train, std::uint32_t test,
                 std::uint64_t seed) {
  write_part(folder, "train", train, 2 * seed);
  write_part(folder, "t10k", test, 2 * seed + 1);
}

}  // namespace examples::testing
