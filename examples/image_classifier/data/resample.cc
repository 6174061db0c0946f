#include "resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace image_classifier {
namespace {

/// What one pixel of the result is made of: pixels from `first` on, with these shares.
struct Taps {
  std::int64_t first = 0;
  std::vector<float> shares;
};

/// For each of `count` places that divide `length` pixels from `begin` on; `size`: of the picture.
std::vector<Taps> taps_of(double begin, double length, std::int64_t count, std::int64_t size) {
  const double scale = length / static_cast<double>(count);
  const double reach = std::max(scale, 1.0);
  std::vector<Taps> all(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const auto last = std::min(size - 1, static_cast<std::int64_t>(std::floor(centre + reach)));
    Taps& taps = all[static_cast<std::size_t>(i)];
    taps.first = std::clamp(static_cast<std::int64_t>(std::floor(centre - reach)), std::int64_t{0},
                            size - 1);
    double sum = 0;
    std::vector<double> shares;
    for (std::int64_t place = taps.first; place <= std::max(last, taps.first); ++place) {
      const double distance = std::abs(static_cast<double>(place) + 0.5 - centre) / reach;
      shares.push_back(std::max(0.0, 1 - distance));
      sum += shares.back();
    }
    for (const double share : shares) {
      taps.shares.push_back(static_cast<float>(sum > 0 ? share / sum : 1.0 / shares.size()));
    }
  }
  return all;
}

}  // namespace

std::vector<float> resampled(const Raster& raster, const Box& box, std::int64_t width,
                             std::int64_t height) {
  const std::vector<Taps> columns = taps_of(box.left, box.width, width, raster.width);
  const std::vector<Taps> rows = taps_of(box.top, box.height, height, raster.height);
  const std::int64_t top = rows.front().first;
  const std::int64_t bottom =
      rows.back().first + static_cast<std::int64_t>(rows.back().shares.size());
  // Along the rows that are needed first, then down.
  std::vector<float> narrow(static_cast<std::size_t>((bottom - top) * width * 3));
  float* out = narrow.data();
  for (std::int64_t y = top; y < bottom; ++y) {
    const std::uint8_t* row = raster.bytes.data() + y * raster.width * 3;
    for (const Taps& taps : columns) {
      for (std::int64_t channel = 0; channel < 3; ++channel) {
        const std::uint8_t* pixel = row + taps.first * 3 + channel;
        float sum = 0;
        for (const float share : taps.shares) {
          sum += share * static_cast<float>(*pixel);
          pixel += 3;
        }
        *out++ = sum;
      }
    }
  }
  std::vector<float> result(static_cast<std::size_t>(height * width * 3));
  out = result.data();
  for (const Taps& taps : rows) {
    for (std::int64_t i = 0; i < width * 3; ++i) {
      const float* value = narrow.data() + (taps.first - top) * width * 3 + i;
      float sum = 0;
      for (const float share : taps.shares) {
        sum += share * *value;
        value += width * 3;
      }
      *out++ = sum;
    }
  }
  return result;
}

}  // namespace image_classifier
