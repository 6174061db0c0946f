#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sinew::internal {

/// `what` for the text: "a Member".
template <class Message>
absl::StatusOr<Message> parse_message(std::string_view what, const std::string& bytes) {
  Message message;
  if (message.ParseFromString(bytes)) return message;
  return absl::InvalidArgumentError(std::string(what) +
                                    " cannot be understood: its bytes are no such message");
}

}  // namespace sinew::internal
