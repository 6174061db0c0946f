#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/file_descriptor.h"

namespace sinew::internal {

/// A folder that others may use too, in which this process keeps files of its own.
///
/// A file is taken only if it is a regular one, belongs to the user of this process or to root, and
/// no other user may write it. Symbolic links are not followed, so that no other user leads this
/// process to another of its files. What is opened is checked, not what the name stood for a moment
/// before, and all names are looked up in the folder that was opened.
///
/// Errors name the path, what is wrong with it and what to do: kInvalidArgument when another path
/// is needed, kPermissionDenied when another user may write there, kUnavailable otherwise.
///
/// Functions use the file system, so they may block. Not thread-safe.
class GuardedFolder {
 public:
  /// `path` ends with "/", or is ".". Links on the way to the folder are followed. kNotFound if
  /// there is no such folder; kPermissionDenied if everybody may remove and replace files in it.
  static absl::StatusOr<GuardedFolder> open(std::string path);

  /// Makes an empty file, of which only the owner may read and write, if there is none.
  absl::StatusOr<FileDescriptor> open_or_create(const std::string& name) const;

  /// Whether the name stands for that file still.
  bool is_named(const std::string& name, const FileDescriptor& file) const;
  std::string path_of(const std::string& name) const { return path_ + name; }

 private:
  GuardedFolder(std::string path, FileDescriptor folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}

  absl::StatusOr<FileDescriptor> checked(FileDescriptor file, const std::string& name) const;
  absl::Status failure(const char* doing, const std::string& name, int error) const;

  std::string path_;
  FileDescriptor folder_;
};

}  // namespace sinew::internal
