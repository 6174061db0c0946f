#include "open_data.h"

#include <string_view>

#include "dummy_set.h"
#include "folder_set.h"
#include "memory_set.h"
#include "sinew/examples/common/labelled_images.h"

namespace image_classifier {
namespace {
constexpr std::string_view kFolders = "imagefolder:";
}  // namespace

DataSets open_data(const Options& options) {
  const auto seed = static_cast<std::uint64_t>(options.seed);
  if (options.dummy_input > 0) return dummy_sets(options.dummy_input, options.image_size, seed);
  if (options.data.rfind(kFolders, 0) == 0) {
    return folder_sets(options.data.substr(kFolders.size()), options.image_size, seed);
  }
  return memory_sets(examples::load_images(options.data), seed);
}

}  // namespace image_classifier
