#pragma once

#include <string>

#include "absl/status/status.h"

namespace google::protobuf {
class Message;
class MessageLite;
}  // namespace google::protobuf

namespace sinew::internal {

/// Reads what a frame carries in addition to its payloads (an Envelope, or the Call of a foreign
/// client). kInvalidArgument: it is no such message, or it is larger than kMaxEnvelopeBytes; then
/// nothing has been parsed, nor allocated for it. kResourceExhausted: it has more parts than
/// rpc/wire/bounded_parse.h allows (likewise), or there is no memory for them.
absl::Status parse_envelope(const std::string& bytes, google::protobuf::MessageLite& envelope);

/// The same limits at the sender of what was serialised, who is told what to do:
/// kResourceExhausted. `envelope` is a message of its type, and has some field.
absl::Status check_envelope_size(const std::string& bytes,
                                 const google::protobuf::Message& envelope);

}  // namespace sinew::internal
