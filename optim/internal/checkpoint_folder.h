#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sinew/optim/internal/checkpoint_messages.h"

namespace sinew::internal {

/// What says that a part of a checkpoint is complete, and what is in it. A text file next to the
/// part's data.
struct CheckpointManifest {
  std::string worker;
  std::uint64_t number = 0;
  /// Of one save(): the parts of a checkpoint have the same.
  std::uint64_t save = 0;
  std::string optimizer;
  CheckpointNotes notes;
  std::uint64_t data_bytes = 0;
  /// Of the data, as hexadecimal digits.
  std::string data_sha256;
  /// `0 float [3, 4]`: group, element type, sizes.
  std::vector<std::string> parameters;
  /// `Float [4]`: what is kept in addition to the parameters.
  std::vector<std::string> kept;

  /// The first difference when `mine` is of another optimizer, or of other tensors; empty: none.
  std::string difference(const CheckpointManifest& mine) const;
  /// Throws RpcError kFailedPrecondition that names `path` and the first difference when `mine` is
  /// of another optimizer, or of other tensors.
  void check_fits(const CheckpointManifest& mine, const std::string& path) const;

  std::string to_text() const;
  /// Throws RpcError kDataLoss that names `file` when the text is none of this format.
  static CheckpointManifest parse(const std::string& text, const std::string& file);
};

/// The parts of checkpoints that one worker keeps in one folder. A part is two files, of which the
/// manifest is written last; both appear complete or not at all, also when the host fails. Files of
/// other workers, and what is no file, are left alone. Functions throw RpcError, with the path in
/// its text.
class CheckpointFolder {
 public:
  /// `name` is one to be made below `root`: relative, without "..", and no symbolic link.
  CheckpointFolder(const std::string& root, const std::string& name, std::string worker);

  const std::string& path() const { return folder_; }
  /// What is there; nothing when there is no folder. Parts with a manifest that says nothing are
  /// not whole, but have used their numbers.
  CheckpointParts parts() const;
  /// Also reads it all again; kDataLoss when it is not what was written. kAlreadyExists when there
  /// is a part of this number. When it throws, nothing is left of it. Removes what writes have left
  /// that did not end.
  void write(CheckpointManifest manifest, const std::string& data) const;
  /// kNotFound when there is none, kDataLoss when it or the size of the data is wrong, or it is
  /// another worker's, kPermissionDenied when it is another user's, kFailedPrecondition when it is
  /// no regular file.
  CheckpointManifest read_manifest(std::uint64_t number) const;
  /// Reads all data. kDataLoss when they are not what was written; otherwise as read_manifest().
  void check_data(const CheckpointManifest& manifest) const;
  std::string data_path(std::uint64_t number) const;
  /// Removes the parts with smaller numbers.
  void remove_before(std::uint64_t number) const;

 private:
  /// A file of this worker's.
  struct Entry {
    std::string path;
    std::uint64_t number = 0;
    /// ".pt", ".manifest"; or one of these with what is unfinished behind it.
    std::string ending;
  };
  std::vector<Entry> entries() const;
  void remove_leftovers() const;
  std::string path(std::uint64_t number, const char* ending) const;

  const std::string folder_;
  const std::string worker_;
};

}  // namespace sinew::internal
