#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace sinew::internal {

class LinkRunner;

/// The room that a request takes of what its sender may send: given back when this goes, at the
/// latest. Empty: it takes none. As a Credit, but without memory of its own.
class RequestRoom {
 public:
  RequestRoom() = default;
  /// Of a request with so many bytes.
  RequestRoom(std::shared_ptr<LinkRunner> runner, std::uint64_t bytes)
      : runner_(std::move(runner)), bytes_(bytes) {}
  RequestRoom(RequestRoom&& other) noexcept = default;
  RequestRoom& operator=(RequestRoom&& other) noexcept {
    give_back();
    runner_ = std::move(other.runner_);
    bytes_ = other.bytes_;
    return *this;
  }
  ~RequestRoom() { give_back(); }
  void give_back();

 private:
  std::shared_ptr<LinkRunner> runner_;
  std::uint64_t bytes_ = 0;
};

}  // namespace sinew::internal
