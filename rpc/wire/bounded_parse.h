#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"

namespace google::protobuf {
class Descriptor;
class Message;
}  // namespace google::protobuf

namespace sinew::internal {

// What a parser of Protocol Buffers makes of bytes takes many times their memory: a null value is
// two bytes on the wire and forty beyond. So the parts are counted before anything is made of them.

/// Messages within a message, and texts and byte strings, and unknown fields. A value is a part,
/// and so is the text, list or tensor in it.
constexpr std::size_t kMaxMessageParts = std::size_t{1} << 20;
/// Items of packed lists, and other repeated numbers.
constexpr std::size_t kMaxPackedItems = std::size_t{16} << 20;

/// Whether a serialised message of that type keeps to both. kResourceExhausted says what to do;
/// kInvalidArgument: the bytes are no such message. Allocates nothing, and does not look at
/// messages that are too short to have so many parts.
absl::Status check_parts(std::string_view bytes, const google::protobuf::Descriptor& type);

/// check_parts(), then parses. kInvalidArgument: the bytes do not parse. kResourceExhausted: too
/// many parts, or no memory for them. After an error the message may hold a part of what was sent.
absl::Status parse_bounded(std::string_view bytes, google::protobuf::Message& message);

}  // namespace sinew::internal
