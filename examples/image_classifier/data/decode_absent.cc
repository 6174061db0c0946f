// Built where there is no libjpeg-turbo or no libpng.

#include <stdexcept>

#include "decode.h"

namespace image_classifier {

Raster read_picture(const std::filesystem::path&) {
  check_decoder();
  return {};
}

void check_decoder() {
  throw std::runtime_error(
      "--data imagefolder: needs libjpeg-turbo and libpng, and this program was built without them "
      "(on Debian: apt-get install libturbojpeg0-dev libpng-dev; then build it again)");
}

}  // namespace image_classifier
