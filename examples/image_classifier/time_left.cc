#include "time_left.h"

#include <cmath>
#include <cstdint>

namespace image_classifier {

std::string time_text(double seconds) {
  constexpr std::int64_t kHour = 60;
  constexpr std::int64_t kDay = 24 * kHour;
  if (seconds < 60) return std::to_string(std::llround(std::ceil(seconds))) + " s";
  const std::int64_t minutes = std::llround(seconds / 60);
  if (minutes < kHour) return std::to_string(minutes) + " min";
  if (minutes < kDay) {
    return std::to_string(minutes / kHour) + " h " + std::to_string(minutes % kHour) + " min";
  }
  return std::to_string(minutes / kDay) + " d " + std::to_string(minutes % kDay / kHour) + " h";
}

}  // namespace image_classifier
