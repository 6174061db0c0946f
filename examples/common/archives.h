#pragma once

#include <string>

#include "ATen/core/ivalue.h"
#include "torch/serialize/archive.h"

/// Parts of LibTorch's archives. All that reads throws c10::Error for what is not there.
namespace examples {

inline std::string to_bytes(torch::serialize::OutputArchive& archive) {
  std::string bytes;
  archive.save_to([&bytes](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  return bytes;
}

template <class Value>
Value read(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  archive.read(key, value);
  return value.to<Value>();
}

inline at::Tensor read_tensor(torch::serialize::InputArchive& archive, const std::string& key) {
  at::Tensor value;
  archive.read(key, value, /*is_buffer=*/true);
  return value;
}

/// `part`: whatever has save() and load(), like a module or an optimizer.
template <class Part>
void save_part(torch::serialize::OutputArchive& archive, const std::string& key, const Part& part) {
  torch::serialize::OutputArchive own(archive.compilation_unit());
  part.save(own);
  archive.write(key, own);
}
template <class Part>
void load_part(torch::serialize::InputArchive& archive, const std::string& key, Part& part) {
  torch::serialize::InputArchive own;
  archive.read(key, own);
  part.load(own);
}

}  // namespace examples
