#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

/// Pictures as files for tests.
namespace examples::testing {

/// The three bytes of a pixel.
using Painter = std::function<std::vector<std::uint8_t>(std::int64_t x, std::int64_t y)>;

/// `components`: 1 (grey) to 4 (with transparency); the painter has as many bytes.
void write_png(const std::filesystem::path& file, std::int64_t width, std::int64_t height,
               int components, const Painter& painter);
/// Of high quality: colours are off by a few steps.
void write_jpeg(const std::filesystem::path& file, std::int64_t width, std::int64_t height,
                const Painter& painter);

/// `folder/train` and `folder/val` with so many pictures of each of some classes ("a", "b", ...),
/// JPEG and PNG in turns, of different sizes: noise, in which one of the colours is strong. Drawn
/// from `seed`.
void write_image_folder(const std::filesystem::path& folder, int classes, int train, int val,
                        std::uint64_t seed = 1);

}  // namespace examples::testing
