#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace sinew::internal {

/// Of fields, in the encoding of Protocol Buffers.
enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

/// Reads protobuf's wire format out of the slices of a received message. Every read is checked
/// against the end of the innermost open field, so hostile bytes make it return nullopt or false,
/// never read astray.
class SliceReader {
 public:
  explicit SliceReader(const grpc::ByteBuffer& message);
  SliceReader(const SliceReader&) = delete;
  SliceReader& operator=(const SliceReader&) = delete;

  /// Bytes left in the innermost open field.
  std::size_t left() const { return limit_ - position_; }
  bool at_end() const { return left() == 0; }

  std::optional<std::uint64_t> read_varint();
  /// Size of the length-delimited field that follows, checked to fit into what is left.
  std::optional<std::size_t> read_length();
  /// `size_bytes` must not exceed left(), here and below.
  void read(char* to, std::size_t size_bytes);
  std::string read_string(std::size_t size_bytes);
  /// Long pieces alias the message's memory, short ones are copied: a few bytes must not hold on to
  /// a large buffer.
  absl::Cord read_cord(std::size_t size_bytes);
  void skip(std::size_t size_bytes);
  /// Skips the value of a field of the given wire type; false for bytes that are no such value.
  bool skip_value(std::uint32_t wire_type);

  /// Narrows the reader to the next `size_bytes`; give the result to close_field() once they are
  /// read.
  std::size_t open_field(std::size_t size_bytes);
  void close_field(std::size_t outer_limit) { limit_ = outer_limit; }

 private:
  /// The rest of the current slice; never empty while bytes are left.
  absl::string_view piece();
  void advance(std::size_t size_bytes);

  std::vector<grpc::Slice> slices_;
  std::size_t next_slice_ = 0;
  /// Of the one before that.
  absl::string_view rest_;
  std::size_t position_ = 0;
  std::size_t limit_ = 0;
};

}  // namespace sinew::internal
