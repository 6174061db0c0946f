#pragma once

#include <string>

namespace image_classifier {

/// "35 s", "12 min", "3 h 20 min" or "2 d 3 h": as exact as an estimate can be.
std::string time_text(double seconds);

}  // namespace image_classifier
