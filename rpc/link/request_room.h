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
  /// `room`: Inbound::room() of the request.
  RequestRoom(std::shared_ptr<LinkRunner> runner, std::uint64_t room)
      : runner_(std::move(runner)), room_(room) {}
  RequestRoom(RequestRoom&& other) noexcept = default;
  RequestRoom& operator=(RequestRoom&& other) noexcept {
    give_back();
    runner_ = std::move(other.runner_);
    room_ = other.room_;
    return *this;
  }
  ~RequestRoom() { give_back(); }
  void give_back();

 private:
  std::shared_ptr<LinkRunner> runner_;
  std::uint64_t room_ = 0;
};

}  // namespace sinew::internal
