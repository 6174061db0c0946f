#include "sinew/rpc/transport/grpc/connection/slice_reader.h"

#include <algorithm>
#include <utility>

namespace sinew::internal {
namespace {

// A piece shorter than this is copied out: that costs less than the bookkeeping of an alias, and an
// alias would pin the whole buffer that the socket was read into.
constexpr std::size_t kAliasBytes = std::size_t{16} << 10;

}  // namespace

SliceReader::SliceReader(const grpc::ByteBuffer& message) {
  // A message that cannot be dumped leaves no slices and reads as empty.
  if (!message.Dump(&slices_).ok()) slices_.clear();
  for (const grpc::Slice& slice : slices_) limit_ += slice.size();
}

absl::string_view SliceReader::piece() {
  while (rest_.empty()) {
    const grpc::Slice& slice = slices_[next_slice_++];
    rest_ = {reinterpret_cast<const char*>(slice.begin()), slice.size()};
  }
  return rest_;
}

void SliceReader::advance(std::size_t size_bytes) {
  rest_.remove_prefix(size_bytes);
  position_ += size_bytes;
}

std::optional<std::uint64_t> SliceReader::read_varint() {
  // Most are of one byte.
  if (!at_end() && !rest_.empty() && static_cast<std::uint8_t>(rest_.front()) < 0x80) {
    const auto value = static_cast<std::uint8_t>(rest_.front());
    advance(1);
    return value;
  }
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (at_end()) return std::nullopt;
    const auto byte = static_cast<std::uint8_t>(piece().front());
    advance(1);
    // The tenth byte holds one bit.
    if (shift == 63 && byte > 1) return std::nullopt;
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<std::size_t> SliceReader::read_length() {
  const std::optional<std::uint64_t> length = read_varint();
  if (!length || *length > left()) return std::nullopt;
  return static_cast<std::size_t>(*length);
}

void SliceReader::read(char* to, std::size_t size_bytes) {
  while (size_bytes > 0) {
    const absl::string_view part = piece().substr(0, size_bytes);
    to = std::copy(part.begin(), part.end(), to);
    advance(part.size());
    size_bytes -= part.size();
  }
}

std::string SliceReader::read_string(std::size_t size_bytes) {
  std::string bytes;
  bytes.reserve(size_bytes);
  while (bytes.size() < size_bytes) {
    const absl::string_view part = piece().substr(0, size_bytes - bytes.size());
    bytes.append(part.data(), part.size());
    advance(part.size());
  }
  return bytes;
}

absl::Cord SliceReader::read_cord(std::size_t size_bytes) {
  absl::Cord bytes;
  std::size_t wanted = size_bytes;
  while (wanted > 0) {
    const absl::string_view part = piece().substr(0, wanted);
    if (part.size() >= kAliasBytes) {
      bytes.Append(absl::MakeCordFromExternal(part, [slice = slices_[next_slice_ - 1]] {}));
    } else {
      bytes.Append(part);
    }
    advance(part.size());
    wanted -= part.size();
  }
  return bytes;
}

void SliceReader::skip(std::size_t size_bytes) {
  while (size_bytes > 0) {
    const std::size_t step = std::min(size_bytes, piece().size());
    advance(step);
    size_bytes -= step;
  }
}

bool SliceReader::skip_value(std::uint32_t wire_type) {
  std::size_t size_bytes = 0;
  switch (wire_type) {
    case kVarint:
      return read_varint().has_value();
    case kFixed64:
      size_bytes = 8;
      break;
    case kFixed32:
      size_bytes = 4;
      break;
    case kLengthDelimited: {
      const std::optional<std::size_t> length = read_length();
      if (!length) return false;
      size_bytes = *length;
      break;
    }
    default:
      return false;
  }
  if (size_bytes > left()) return false;
  skip(size_bytes);
  return true;
}

std::size_t SliceReader::open_field(std::size_t size_bytes) {
  return std::exchange(limit_, position_ + size_bytes);
}

}  // namespace sinew::internal
