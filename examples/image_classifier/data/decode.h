#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace image_classifier {

/// Red, green and blue of each pixel, row by row.
struct Raster {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> bytes;
};

/// Reads a JPEG or PNG file, whichever its first bytes say it is; transparency counts as black, and
/// grey as colours. Throws std::runtime_error that names the file and what is wrong with it.
/// Thread-safe.
Raster read_picture(const std::filesystem::path& file);

/// Throws std::runtime_error that says what to install where this program has no decoder.
void check_decoder();

}  // namespace image_classifier
