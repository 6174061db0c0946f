#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "sinew/rpc/planes/nccl/internal/messages.h"

namespace sinew::internal::nccl {

/// Puts numbered messages that were repeated and reordered back in order. What is too far ahead is
/// dropped: its sender, an Outbox, sends it again. Not thread-safe.
class OrderedInbox {
 public:
  static constexpr std::uint64_t kWindow = 256;

  void add(Numbered numbered);
  /// The next message in order, once.
  std::optional<Message> take();
  /// Every message up to this one was taken.
  std::uint64_t taken() const { return taken_; }

 private:
  std::uint64_t taken_ = 0;
  std::map<std::uint64_t, Message> held_;
};

}  // namespace sinew::internal::nccl
