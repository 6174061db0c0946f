#pragma once

#include "picture_set.h"
#include "sinew/examples/image_classifier/options.h"

namespace image_classifier {

/// The pictures that the options ask for. Throws std::runtime_error that names the file or folder
/// which cannot be used.
DataSets open_data(const Options& options);

}  // namespace image_classifier
