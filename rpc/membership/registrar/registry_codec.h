#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sinew/rpc/membership/registry/registry_messages.h"

namespace sinew::internal {

// What workers and their registrar say, as bytes (protos/sinew/registry.proto). Decoding checks
// what the table and the client do not: names, ranks, numbers at their bounds. kInvalidArgument
// says what is wrong.

struct AskedOfRegistrar {
  std::uint64_t echo = 0;
  registry::Request request;
  /// Of the sender's questions, from 1.
  std::uint64_t number = 0;
};
std::string encode(const AskedOfRegistrar& asked);
absl::StatusOr<AskedOfRegistrar> decode_asked(const std::string& bytes);

struct SaidByRegistrar {
  struct Item {
    std::uint64_t token = 0;
    registry::Answer answer;
  };
  Incarnation registrar;
  /// A member that it has not heard for so long is lost.
  registry::Time lease{};
  /// The latest question of the receiver that has been looked at.
  std::uint64_t answered = 0;
  std::vector<Item> items;
};
std::string encode(const SaidByRegistrar& said);
absl::StatusOr<SaidByRegistrar> decode_said(const std::string& bytes);

}  // namespace sinew::internal
