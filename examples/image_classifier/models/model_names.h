#pragma once

#include <string>
#include <vector>

namespace image_classifier {

/// The networks that ResNet can be.
inline const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {"resnet18",  "resnet34",  "resnet50",
                                                 "resnet101", "resnet152", "botnet50"};
  return names;
}

}  // namespace image_classifier
