#pragma once

#include <cstdint>
#include <vector>

#include "decode.h"

namespace image_classifier {

/// A part of a picture.
struct Box {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
};

/// The box as `height` rows of `width` pixels of three floats from 0 to 255: a linear filter that
/// is as wide as a pixel of the result, so that nothing is left out where it shrinks. The same
/// numbers on all machines of one kind, whatever their threads.
std::vector<float> resampled(const Raster& raster, const Box& box, std::int64_t width,
                             std::int64_t height);

}  // namespace image_classifier
