#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace sinew::internal {

/// Writes protobuf's wire format into the slices of a message. Long cords are referred to, not
/// copied.
class SliceWriter {
 public:
  /// Smaller pieces of cords are copied: that costs less than one more slice on the way to the
  /// socket.
  static constexpr std::size_t kAliasBytes = std::size_t{4} << 10;

  static std::size_t varint_size(std::uint64_t value);
  /// Size of a length-delimited field with a one-byte tag.
  static std::size_t field_size(std::size_t content_bytes) {
    return 1 + varint_size(content_bytes) + content_bytes;
  }
  /// Size of a varint field with a one-byte tag; 0 for the value 0, which is not written.
  static std::size_t varint_field_size(std::uint64_t value) {
    return value == 0 ? 0 : 1 + varint_size(value);
  }

  void write_varint(std::uint64_t value);
  void write_varint_field(int field, std::uint64_t value);
  /// Tag and length; the content must follow.
  void open_field(int field, std::size_t content_bytes);
  void write_bytes(absl::string_view bytes);
  void write_cord(const absl::Cord& cord);
  /// Of what has been written so far.
  std::size_t size_bytes() const { return flushed_bytes_ + pending_.size(); }
  /// Writing so many bytes of pieces below kAliasBytes throws nothing from here on.
  void reserve(std::size_t bytes) { pending_.reserve(pending_.size() + bytes); }
  /// What follows goes into another slice.
  void flush();
  /// All or, when it throws, nothing. Nothing of `other` is copied if that has been flushed.
  void append(SliceWriter other);
  /// Of memory for what is copied.
  std::size_t capacity() const { return pending_.capacity(); }

  /// Leaves the writer as new, but with its memory.
  grpc::ByteBuffer finish();

 private:
  std::vector<grpc::Slice> slices_;
  std::size_t flushed_bytes_ = 0;
  std::string pending_;
};

}  // namespace sinew::internal
