#pragma once

#include <string>
#include <string_view>

namespace sinew::internal {

/// Throws RpcError with the path and what errno says: kNotFound, kPermissionDenied,
/// kResourceExhausted for a disk, quota or file size that is exhausted, kAlreadyExists, kInternal.
[[noreturn]] void throw_file_error(const std::string& doing, const std::string& path, int error);

/// Makes what was written to a file or folder outlive a failure of the host. Throws as above.
void flush_file(const std::string& path);

/// As hexadecimal digits.
std::string sha256(std::string_view bytes);
/// Of what is on the disk, as far as the kernel lets one ask for it. Throws as above.
std::string sha256_of_file(const std::string& path);

/// A file that appears with all of its bytes or not at all, also when the host fails, and never in
/// the place of another one. Not thread-safe.
class DurableFile {
 public:
  /// What names of files end in that are not finished.
  static constexpr const char* kUnfinished = ".unfinished";

  /// Writes to a new file in the folder of `path`, under a unique name, and flushes it. Throws as
  /// above; then nothing is left.
  DurableFile(std::string path, std::string_view bytes);
  /// Removes the file unless it has its name.
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  /// Where it is until it has its name.
  const std::string& unfinished() const { return unfinished_; }
  /// Gives it its name. Throws as above, kAlreadyExists when something has that.
  void publish();
  /// Takes it back after publish().
  void withdraw() noexcept;

  /// Whether this process writes a file that has this path, or will have it, at present.
  static bool is_under_way(const std::string& path);

 private:
  void end() noexcept;
  void write(std::string_view bytes) const;

  const std::string path_;
  const std::string unfinished_;
  bool is_published_ = false;
};

}  // namespace sinew::internal
