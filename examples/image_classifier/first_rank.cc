#include "first_rank.h"

#include <algorithm>
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

void check_same_pictures(const std::string& listing, const sinew::ProcessGroup& group) {
  const std::string first = from_first_rank(listing, group);
  if (first == listing) return;
  const auto differ = std::mismatch(first.begin(), first.end(), listing.begin(), listing.end());
  const auto line_at = [](const std::string& text, std::string::const_iterator at) {
    const std::size_t place = static_cast<std::size_t>(at - text.begin());
    const std::size_t begin = place == 0 ? 0 : text.rfind('\n', place - 1) + 1;
    return begin >= text.size() ? std::string("nothing more")
                                : "'" + text.substr(begin, text.find('\n', begin) - begin) + "'";
  };
  throw std::runtime_error("rank " + std::to_string(group.rank()) +
                           " has other pictures than rank 0: " + line_at(listing, differ.second) +
                           " where that has " + line_at(first, differ.first) +
                           ". All ranks need the same folder");
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
