#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

/// The messages of protos/sinew/nccl.proto, checked as far as they can be without knowing more.
namespace sinew::internal::nccl {

/// A pair of devices. On the wire as the sender sees it; here as the worker does that has it.
struct LinkKey {
  int own_device = 0;
  int peer_device = 0;

  friend bool operator<(LinkKey a, LinkKey b) {
    return a.own_device != b.own_device ? a.own_device < b.own_device
                                        : a.peer_device < b.peer_device;
  }
};

enum class Direction { kOutgoing, kIncoming };

struct Offer {
  std::uint64_t ticket = 0;
  LinkKey link;
  std::vector<std::uint64_t> sizes;
  bool ready = false;
};

struct Ready {
  std::uint64_t ticket = 0;
};

struct Accept {
  std::uint64_t ticket = 0;
};

struct Retract {
  std::uint64_t ticket = 0;
  Direction direction = Direction::kOutgoing;
};

struct End {
  std::uint64_t ticket = 0;
  Direction direction = Direction::kOutgoing;
  absl::Status status;
};

struct Open {
  LinkKey link;
  std::uint64_t epoch = 0;
  int version = 0;
  std::string id;
};

struct Start {
  LinkKey link;
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;
  std::uint64_t ticket = 0;
  Direction direction = Direction::kOutgoing;
};

struct Done {
  std::uint64_t ticket = 0;
};

enum class Cause { kFailed, kStopped, kIncompatible };

struct Abort {
  LinkKey link;
  std::uint64_t epoch = 0;
  Cause cause = Cause::kFailed;
  std::string reason;
};

using Message = std::variant<Offer, Ready, Accept, Retract, End, Open, Start, Done, Abort>;

/// Of a message, written, at most.
std::size_t most_bytes(const Message& message);

constexpr int kMaxDevices = 1024;
constexpr int kMaxBuffers = 4096;
/// Of one transfer, so that no sum overflows.
constexpr std::uint64_t kMaxTransferBytes = std::uint64_t{1} << 48;

/// A note that says these, in this order.
std::string encode(const std::vector<Message>& messages);
/// Links and directions are turned round: they are the receiver's. kInvalidArgument says what is
/// wrong.
absl::StatusOr<std::vector<Message>> decode(std::string_view bytes);

}  // namespace sinew::internal::nccl
