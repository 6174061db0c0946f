// Built where there are libjpeg-turbo and libpng.

#include "decode.h"

#include <png.h>
#include <turbojpeg.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "sinew/examples/common/files.h"

namespace image_classifier {
namespace {

// More than any picture has; a damaged header may say anything.
constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;

struct EndTurboJpeg {
  void operator()(void* handle) const { tjDestroy(handle); }
};

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& why) {
  throw std::runtime_error(file.string() + " cannot be read as a picture: " + why);
}

void resize(Raster& raster, std::int64_t width, std::int64_t height, std::int64_t bytes_of_pixel,
            const std::filesystem::path& file) {
  if (width < 1 || height < 1 || width * height > kMostPixels) {
    fail(file, "it says that it has " + std::to_string(width) + " x " + std::to_string(height) +
                   " pixels");
  }
  raster.width = width;
  raster.height = height;
  raster.bytes.resize(static_cast<std::size_t>(width * height * bytes_of_pixel));
}

/// As Adobe's programs write them: all four are inverted.
void to_rgb(Raster& raster, const std::vector<std::uint8_t>& cmyk) {
  for (std::size_t i = 0; i < cmyk.size() / 4; ++i) {
    const int black = cmyk[4 * i + 3];
    for (std::size_t channel = 0; channel < 3; ++channel) {
      raster.bytes[3 * i + channel] =
          static_cast<std::uint8_t>(cmyk[4 * i + channel] * black / 255);
    }
  }
}

Raster read_jpeg(const std::string& bytes, const std::filesystem::path& file) {
  const std::unique_ptr<void, EndTurboJpeg> decoder(tjInitDecompress());
  if (decoder == nullptr) fail(file, "there is no memory for a decoder");
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  int width = 0;
  int height = 0;
  int sampling = 0;
  int colours = 0;
  const auto check = [&](int result) {
    if (result == 0) return;
    const std::string text = tjGetErrorStr2(decoder.get());
    // Cameras write what nobody knows between two parts of a file. All other warnings mean that
    // pixels are missing.
    if (tjGetErrorCode(decoder.get()) == TJERR_WARNING &&
        text.find("extraneous bytes") != std::string::npos) {
      return;
    }
    fail(file, text);
  };
  check(
      tjDecompressHeader3(decoder.get(), data, bytes.size(), &width, &height, &sampling, &colours));
  Raster raster;
  resize(raster, width, height, 3, file);
  const bool has_black = colours == TJCS_CMYK || colours == TJCS_YCCK;
  std::vector<std::uint8_t> cmyk(has_black ? raster.bytes.size() / 3 * 4 : 0);
  check(tjDecompress2(decoder.get(), data, bytes.size(),
                      has_black ? cmyk.data() : raster.bytes.data(), width, /*pitch=*/0, height,
                      has_black ? TJPF_CMYK : TJPF_RGB, TJFLAG_ACCURATEDCT));
  if (has_black) to_rgb(raster, cmyk);
  return raster;
}

Raster read_png(const std::string& bytes, const std::filesystem::path& file) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> freed(&image, png_image_free);
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) {
    fail(file, image.message);
  }
  image.format = PNG_FORMAT_RGB;
  Raster raster;
  resize(raster, image.width, image.height, 3, file);
  const png_color black{0, 0, 0};
  if (png_image_finish_read(&image, &black, raster.bytes.data(), 0, nullptr) == 0) {
    fail(file, image.message);
  }
  return raster;
}

}  // namespace

Raster read_picture(const std::filesystem::path& file) {
  const std::string bytes = examples::read_file(file);
  if (bytes.rfind("\xff\xd8", 0) == 0) return read_jpeg(bytes, file);
  if (bytes.rfind("\x89PNG", 0) == 0) return read_png(bytes, file);
  fail(file, bytes.empty() ? "it is empty" : "it is neither JPEG nor PNG");
}

void check_decoder() {}

}  // namespace image_classifier
