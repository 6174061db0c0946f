#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace sinew::testing {

/// The bytes in slices of that size.
inline grpc::ByteBuffer buffer_of(std::string_view bytes, std::size_t slice_bytes = 1 << 20) {
  std::vector<grpc::Slice> slices;
  for (std::size_t at = 0; at < bytes.size(); at += slice_bytes) {
    slices.emplace_back(std::string(bytes.substr(at, slice_bytes)));
  }
  if (slices.empty()) slices.emplace_back();
  return grpc::ByteBuffer(slices.data(), slices.size());
}

inline std::string bytes_of(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

}  // namespace sinew::testing
