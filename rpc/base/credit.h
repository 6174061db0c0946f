#pragma once

#include <utility>

#include "absl/functional/any_invocable.h"

namespace sinew::internal {

/// Runs an action once, when it is destroyed: how the reader of a message tells the receiving layer
/// that the memory is free and the sender's flow-control window may move on.
class Credit {
 public:
  Credit() = default;
  explicit Credit(absl::AnyInvocable<void() &&> give_back) : give_back_(std::move(give_back)) {}
  Credit(Credit&& other) noexcept : give_back_(std::exchange(other.give_back_, nullptr)) {}
  Credit& operator=(Credit&& other) noexcept {
    reset();
    give_back_ = std::exchange(other.give_back_, nullptr);
    return *this;
  }
  ~Credit() { reset(); }
  void reset() {
    if (auto give_back = std::exchange(give_back_, nullptr)) std::move(give_back)();
  }

 private:
  absl::AnyInvocable<void() &&> give_back_;
};

}  // namespace sinew::internal
