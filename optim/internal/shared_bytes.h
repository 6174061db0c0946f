#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/file_descriptor.h"

namespace sinew::internal {

/// Where processes that see this one's files find the bytes. What a peer says here is not believed:
/// see SharedBytes::open().
struct SharedPlace {
  std::int64_t process = 0;
  std::int64_t descriptor = -1;
  /// Drawn by who made them, and known only to those that it was told to.
  std::string name;
};

/// Bytes in memory of the system's (memfd) that never change, and that other processes of the host
/// and user can map: all of them have one copy then, which goes with the last one. Thread-safe.
class SharedBytes {
 public:
  /// Bytes that are being written; for one thread at a time. Zero where nothing was written.
  class Writer {
   public:
    /// kResourceExhausted, with what the system says.
    static absl::StatusOr<Writer> make(std::size_t size);
    absl::Status write(std::size_t offset, const void* bytes, std::size_t size) const;
    /// To write in place. It must be gone before seal().
    absl::StatusOr<std::shared_ptr<char>> map() const;
    /// From now on they cannot be written to.
    absl::StatusOr<std::shared_ptr<const SharedBytes>> seal() &&;

   private:
    Writer(FileDescriptor file, std::size_t size, std::string name)
        : file_(std::move(file)), size_(size), name_(std::move(name)) {}

    FileDescriptor file_;
    std::size_t size_ = 0;
    std::string name_;
  };

  /// Maps the bytes of another process. kUnavailable unless what is found there has this name and
  /// size and cannot be changed by anybody any more: so no peer decides which file is opened.
  static absl::StatusOr<std::shared_ptr<const SharedBytes>> open(const SharedPlace& place,
                                                                 std::size_t size);
  ~SharedBytes();
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;

  const char* data() const { return data_; }
  std::size_t size() const { return size_; }
  SharedPlace place() const;
  /// The same bytes for users: a process that writes there gets its own copy of the page.
  absl::StatusOr<std::shared_ptr<char>> map_private() const;

 private:
  SharedBytes(FileDescriptor file, std::size_t size, std::string name, const char* data)
      : file_(std::move(file)), size_(size), name_(std::move(name)), data_(data) {}
  static absl::StatusOr<std::shared_ptr<const SharedBytes>> map(FileDescriptor file,
                                                                std::size_t size, std::string name);

  const FileDescriptor file_;
  const std::size_t size_;
  const std::string name_;
  const char* const data_;
};

/// Of processes with the same one it may be tried; "" where the system says nothing.
std::string sharing_pod();

}  // namespace sinew::internal
