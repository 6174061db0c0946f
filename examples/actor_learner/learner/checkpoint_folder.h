#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace actor_learner {

/// Files `checkpoint-000012.ckpt` in a folder, with rising numbers. Each is there as a whole or not
/// at all, also after the machine has lost its power, and says how long it is and what its checksum
/// is. One writer at a time. Functions throw std::runtime_error with the file's name.
class CheckpointFolder {
 public:
  /// How many files stay.
  static constexpr std::size_t kKept = 3;

  explicit CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  struct Checkpoint {
    std::filesystem::path file;
    std::string content;
  };
  /// The newest one that is whole; nothing when there is none of any kind. Those that are damaged
  /// are renamed to `checkpoint-000012.damaged`; `tell` gets the name of each, and what is wrong.
  /// Throws when there are only damaged ones.
  std::optional<Checkpoint> newest(const std::function<void(const std::string&)>& tell) const;

  /// A number that is greater than those of all files here, also damaged ones, was not used before
  /// therefore, and is that of the next save().
  std::int64_t next_number() const;
  void save(const std::string& content) const;

 private:
  /// Of the files with that ending; empty: any. Rising.
  std::vector<std::int64_t> numbers(const std::string& ending) const;
  std::filesystem::path path(std::int64_t number, const std::string& ending) const;

  std::filesystem::path folder_;
};

}  // namespace actor_learner
