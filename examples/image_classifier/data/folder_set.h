#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "decode.h"
#include "picture_set.h"
#include "resample.h"

namespace image_classifier {

/// A folder for each class, with JPEG and PNG files. Their names in alphabetical order are the
/// classes 0, 1, ... For training a picture is a part of the file's at random, of 8 to 100 % of its
/// area, and may be mirrored; for evaluation the middle of it.
class FolderSet final : public PictureSet {
 public:
  /// Reads names only. Throws std::runtime_error that names the folder which is not there, or has
  /// no pictures.
  FolderSet(const std::filesystem::path& folder, std::int64_t side, Use use, std::uint64_t seed);

  const std::vector<std::string>& classes() const { return classes_; }
  std::int64_t count() const override { return static_cast<std::int64_t>(files_.size()); }
  PictureShape shape() const override { return {3, side_, side_}; }
  std::int64_t label(std::int64_t index) const override { return at(index).label; }
  void fill(std::int64_t index, std::uint64_t epoch, float* values) const override;
  std::string listing() const override;
  const std::filesystem::path& file(std::int64_t index) const { return at(index).path; }

 private:
  struct File {
    std::filesystem::path path;
    std::int64_t label = 0;
  };

  const File& at(std::int64_t index) const { return files_.at(static_cast<std::size_t>(index)); }

  const std::int64_t side_;
  const Use use_;
  const std::uint64_t seed_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
};

/// A part of a picture with 8 to 100 % of its area, and sides of 3 to 4 up to 4 to 3; "Going Deeper
/// with Convolutions" (Szegedy et al., 2014).
Box random_part(std::int64_t width, std::int64_t height, SampleRandom& random);
/// The square in the middle with 7/8 of the shorter side, as 224 pixels of 256 are.
Box middle_part(std::int64_t width, std::int64_t height);

/// `DIR/train` and `DIR/val` (or `DIR/test`), with the same classes. Throws as FolderSet, and where
/// check_decoder() does.
DataSets folder_sets(const std::filesystem::path& folder, std::int64_t side, std::uint64_t seed);

}  // namespace image_classifier
