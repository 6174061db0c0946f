#include "folder_set.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <stdexcept>

namespace image_classifier {
namespace {

namespace fs = std::filesystem;

// Of ImageNet, which networks are used to.
constexpr std::array<float, 3> kMean = {0.485F, 0.456F, 0.406F};
constexpr std::array<float, 3> kDeviation = {0.229F, 0.224F, 0.225F};

bool is_picture(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

/// In alphabetical order: that of the system may be another one on each host.
std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().front() != '.') entries.push_back(at->path());
  }
  if (error) throw std::runtime_error(folder.string() + ": " + error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::string first_difference(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  for (const std::string& name : a) {
    if (!std::binary_search(b.begin(), b.end(), name)) return name;
  }
  return {};
}

}  // namespace

FolderSet::FolderSet(const fs::path& folder, std::int64_t side, Use use, std::uint64_t seed)
    : side_(side), use_(use), seed_(seed) {
  for (const fs::path& of_class : sorted_entries(folder)) {
    if (!fs::is_directory(of_class)) continue;
    const std::size_t before = files_.size();
    for (const fs::path& path : sorted_entries(of_class)) {
      if (is_picture(path)) files_.push_back({path, static_cast<std::int64_t>(classes_.size())});
    }
    if (files_.size() == before) {
      throw std::runtime_error(of_class.string() + " has no pictures (.jpg, .jpeg or .png)");
    }
    classes_.push_back(of_class.filename().string());
  }
  if (classes_.empty()) {
    throw std::runtime_error(folder.string() +
                             " has no folders: there is to be one for each class");
  }
}

std::string FolderSet::listing() const {
  std::string lines;
  for (const File& file : files_) {
    lines +=
        classes_[static_cast<std::size_t>(file.label)] + "/" + file.path.filename().string() + "\n";
  }
  return lines;
}

void FolderSet::fill(std::int64_t index, std::uint64_t epoch, float* values) const {
  const Raster raster = read_picture(at(index).path);
  SampleRandom random(seed_, epoch, static_cast<std::uint64_t>(index));
  const bool trains = use_ == Use::kTraining;
  const Box part = trains ? random_part(raster.width, raster.height, random)
                          : middle_part(raster.width, raster.height);
  const bool mirrored = trains && random.below(2) == 1;
  const std::vector<float> pixels = resampled(raster, part, side_, side_);
  for (std::int64_t channel = 0; channel < 3; ++channel) {
    const float mean = kMean[static_cast<std::size_t>(channel)];
    const float deviation = kDeviation[static_cast<std::size_t>(channel)];
    for (std::int64_t y = 0; y < side_; ++y) {
      for (std::int64_t x = 0; x < side_; ++x) {
        const std::int64_t from = mirrored ? side_ - 1 - x : x;
        const float value = pixels[static_cast<std::size_t>((y * side_ + from) * 3 + channel)];
        *values++ = (value / 255 - mean) / deviation;
      }
    }
  }
}

Box random_part(std::int64_t width, std::int64_t height, SampleRandom& random) {
  const auto area = static_cast<double>(width * height);
  // Some shapes do not fit into pictures that are much longer than wide.
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * random.between(0.08, 1);
    const double ratio = std::exp(random.between(std::log(3.0 / 4), std::log(4.0 / 3)));
    const double w = std::round(std::sqrt(target * ratio));
    const double h = std::round(std::sqrt(target / ratio));
    if (w < 1 || h < 1 || w > static_cast<double>(width) || h > static_cast<double>(height)) {
      continue;
    }
    return {static_cast<double>(random.below(width - static_cast<std::int64_t>(w) + 1)),
            static_cast<double>(random.below(height - static_cast<std::int64_t>(h) + 1)), w, h};
  }
  return middle_part(width, height);
}

Box middle_part(std::int64_t width, std::int64_t height) {
  const double side = static_cast<double>(std::min(width, height)) * 7 / 8;
  return {(static_cast<double>(width) - side) / 2, (static_cast<double>(height) - side) / 2, side,
          side};
}

DataSets folder_sets(const fs::path& folder, std::int64_t side, std::uint64_t seed) {
  check_decoder();
  const fs::path train = folder / "train";
  const fs::path test = fs::exists(folder / "val") ? folder / "val" : folder / "test";
  for (const fs::path& part : {train, test}) {
    if (fs::is_directory(part)) continue;
    throw std::runtime_error(folder.string() +
                             " is to have the folders train and val (or test), with a folder for "
                             "each class in them, and has no " +
                             (part == train ? "train" : "val"));
  }
  const auto for_training = std::make_shared<FolderSet>(train, side, Use::kTraining, seed);
  const auto for_test = std::make_shared<FolderSet>(test, side, Use::kEvaluation, seed);
  if (for_training->classes() != for_test->classes()) {
    std::string only = first_difference(for_training->classes(), for_test->classes());
    const bool in_train = !only.empty();
    if (!in_train) only = first_difference(for_test->classes(), for_training->classes());
    throw std::runtime_error("the class '" + only + "' is in " +
                             (in_train ? train : test).string() + " and not in " +
                             (in_train ? test : train).string());
  }
  return {folder.filename().string(), for_training, for_test,
          static_cast<std::int64_t>(for_training->classes().size())};
}

}  // namespace image_classifier
