#pragma once

#include <string>

#include "absl/status/status.h"

namespace google::protobuf {
class MessageLite;
}

namespace sinew::internal {

/// Reads what a frame carries beside its payloads (an Envelope, or the Call of a foreign client).
/// kInvalidArgument: it is no such message, or it is larger than kMaxEnvelopeBytes; then nothing
/// has been parsed, nor allocated for it.
absl::Status parse_envelope(const std::string& bytes, google::protobuf::MessageLite& envelope);

/// The same limit at the sender, who is told what to do: kResourceExhausted.
absl::Status check_envelope_size(const std::string& bytes);

}  // namespace sinew::internal
