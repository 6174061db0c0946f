#include "sinew/rpc/transport/grpc/connection/slice_writer.h"

#include <memory>

#include "sinew/rpc/transport/grpc/connection/slice_reader.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMaxVarintBytes = 10;

// Returns where it ends.
char* put_varint(std::uint64_t value, char* to) {
  while (value >= 0x80) {
    *to++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *to++ = static_cast<char>(value);
  return to;
}

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
  char bytes[kMaxVarintBytes];
  pending_.append(bytes, put_varint(value, bytes));
}

void SliceWriter::write_varint_field(int field, std::uint64_t value) {
  if (value == 0) return;
  char bytes[2 * kMaxVarintBytes];
  char* const end = put_varint(static_cast<std::uint32_t>(field) << 3 | kVarint, bytes);
  pending_.append(bytes, put_varint(value, end));
}

void SliceWriter::open_field(int field, std::size_t content_bytes) {
  char bytes[2 * kMaxVarintBytes];
  char* const end = put_varint(static_cast<std::uint32_t>(field) << 3 | kLengthDelimited, bytes);
  pending_.append(bytes, put_varint(content_bytes, end));
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

void SliceWriter::append(SliceWriter other) {
  other.flush();
  flush();
  slices_.insert(slices_.end(), other.slices_.begin(), other.slices_.end());
  flushed_bytes_ += other.flushed_bytes_;
}

grpc::ByteBuffer SliceWriter::finish() {
  flush();
  if (slices_.empty()) slices_.emplace_back();
  grpc::ByteBuffer message(slices_.data(), slices_.size());
  slices_.clear();
  flushed_bytes_ = 0;
  return message;
}

}  // namespace sinew::internal
