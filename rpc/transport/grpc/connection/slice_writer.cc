#include "sinew/rpc/transport/grpc/connection/slice_writer.h"

#include <memory>

namespace sinew::internal {
namespace {

// Below this a copy costs less than one more slice on the way to the socket.
constexpr std::size_t kAliasBytes = std::size_t{4} << 10;

constexpr std::uint32_t kVarint = 0;
constexpr std::uint32_t kLengthDelimited = 2;

void drop_cord(void* cord) { delete static_cast<absl::Cord*>(cord); }

}  // namespace

std::size_t SliceWriter::varint_size(std::uint64_t value) {
  std::size_t size = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++size;
  }
  return size;
}

void SliceWriter::write_varint(std::uint64_t value) {
  while (value >= 0x80) {
    pending_.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  pending_.push_back(static_cast<char>(value));
}

void SliceWriter::write_varint_field(int field, std::uint64_t value) {
  if (value == 0) return;
  write_varint(static_cast<std::uint32_t>(field) << 3 | kVarint);
  write_varint(value);
}

void SliceWriter::open_field(int field, std::size_t content_bytes) {
  write_varint(static_cast<std::uint32_t>(field) << 3 | kLengthDelimited);
  write_varint(content_bytes);
}

void SliceWriter::write_bytes(absl::string_view bytes) {
  pending_.append(bytes.data(), bytes.size());
}

void SliceWriter::write_cord(const absl::Cord& cord) {
  for (const absl::string_view chunk : cord.Chunks()) {
    if (chunk.size() < kAliasBytes) {
      write_bytes(chunk);
      continue;
    }
    flush();
    // Chunks of this size live outside the Cord object, so they stay where they are as long as any
    // copy of it lives.
    slices_.emplace_back(const_cast<char*>(chunk.data()), chunk.size(), drop_cord,
                         new absl::Cord(cord));
    flushed_bytes_ += chunk.size();
  }
}

void SliceWriter::flush() {
  if (pending_.empty()) return;
  slices_.emplace_back(pending_.data(), pending_.size());
  flushed_bytes_ += pending_.size();
  pending_.clear();
}

grpc::ByteBuffer SliceWriter::finish() {
  flush();
  if (slices_.empty()) slices_.emplace_back();
  return grpc::ByteBuffer(slices_.data(), slices_.size());
}

}  // namespace sinew::internal
