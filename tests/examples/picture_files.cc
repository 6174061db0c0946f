#include "picture_files.h"

#include <png.h>
#include <turbojpeg.h>

#include <memory>
#include <random>
#include <stdexcept>
#include <string>

#include "sinew/examples/common/files.h"

namespace examples::testing {
namespace {

std::vector<std::uint8_t> painted(std::int64_t width, std::int64_t height, const Painter& painter) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      const std::vector<std::uint8_t> pixel = painter(x, y);
      bytes.insert(bytes.end(), pixel.begin(), pixel.end());
    }
  }
  return bytes;
}

void check(bool good, const std::string& what) {
  if (!good) throw std::runtime_error("cannot write " + what);
}

}  // namespace

void write_png(const std::filesystem::path& file, std::int64_t width, std::int64_t height,
               int components, const Painter& painter) {
  constexpr png_uint_32 kFormats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB,
                                      PNG_FORMAT_RGBA};
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = kFormats[components - 1];
  const std::vector<std::uint8_t> bytes = painted(width, height, painter);
  std::filesystem::create_directories(file.parent_path());
  check(png_image_write_to_file(&image, file.c_str(), 0, bytes.data(), 0, nullptr) != 0, file);
}

void write_jpeg(const std::filesystem::path& file, std::int64_t width, std::int64_t height,
                const Painter& painter) {
  const std::unique_ptr<void, int (*)(void*)> encoder(tjInitCompress(), tjDestroy);
  const std::vector<std::uint8_t> bytes = painted(width, height, painter);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  check(
      tjCompress2(encoder.get(), bytes.data(), static_cast<int>(width), 0, static_cast<int>(height),
                  TJPF_RGB, &data, &size, TJSAMP_444, 95, TJFLAG_ACCURATEDCT) == 0,
      file);
  write_file(file, std::string(reinterpret_cast<const char*>(data), size));
  tjFree(data);
}

void write_image_folder(const std::filesystem::path& folder, int classes, int train, int val,
                        std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const auto& [part, count] : {std::pair("train", train), std::pair("val", val)}) {
    for (int of_class = 0; of_class < classes; ++of_class) {
      for (int i = 0; i < count; ++i) {
        const auto width = static_cast<std::int64_t>(24 + random() % 20);
        const auto height = static_cast<std::int64_t>(24 + random() % 20);
        const Painter painter = [&](std::int64_t, std::int64_t) {
          std::vector<std::uint8_t> pixel;
          for (int channel = 0; channel < 3; ++channel) {
            pixel.push_back(
                static_cast<std::uint8_t>(random() % 100 + (channel == of_class % 3 ? 150 : 0)));
          }
          return pixel;
        };
        const std::filesystem::path file = folder / part /
                                           std::string(1, static_cast<char>('a' + of_class)) /
                                           ("picture" + std::to_string(i));
        if (i % 2 == 0) {
          write_jpeg(file.string() + ".jpg", width, height, painter);
        } else {
          write_png(file.string() + ".png", width, height, 3, painter);
        }
      }
    }
  }
}

}  // namespace examples::testing
