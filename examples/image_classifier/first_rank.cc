#include "first_rank.h"

#include <stdexcept>

#include "ATen/ATen.h"

namespace image_classifier {

std::string from_first_rank(std::string bytes, const sinew::ProcessGroup& group) {
  const at::Tensor size = at::full({1}, static_cast<std::int64_t>(bytes.size()), at::kLong);
  group.broadcast(size, 0);
  bytes.resize(static_cast<std::size_t>(size.item<std::int64_t>()));
  if (bytes.empty()) return bytes;
  const at::Tensor all =
      at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte);
  group.broadcast(all, 0);
  return bytes;
}

void on_first_rank(const sinew::ProcessGroup& group, const std::function<void()>& work) {
  std::string failure;
  if (group.rank() == 0) {
    try {
      work();
    } catch (const std::exception& error) {
      failure = error.what();
      if (failure.empty()) failure = "it failed";
    }
  }
  failure = from_first_rank(std::move(failure), group);
  if (!failure.empty()) throw std::runtime_error(failure);
}

}  // namespace image_classifier
