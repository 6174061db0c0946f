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

  grpc::ByteBuffer finish();

 private:
  void flush();

  std::vector<grpc::Slice> slices_;
  std::size_t flushed_bytes_ = 0;
  std::string pending_;
};

}  // namespace sinew::internal
