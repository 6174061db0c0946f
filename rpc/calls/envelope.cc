#include "sinew/rpc/calls/envelope.h"

#include <google/protobuf/message_lite.h>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/wire/message_context.h"

namespace sinew::internal {

absl::Status parse_envelope(const std::string& bytes, google::protobuf::MessageLite& envelope) {
  if (bytes.size() > kMaxEnvelopeBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a message of ", bytes.size(),
                                                   " bytes beside its tensors is refused; at most ",
                                                   kMaxEnvelopeBytes, " are allowed"));
  }
  if (!envelope.ParseFromString(bytes)) {
    return absl::InvalidArgumentError("a message could not be parsed");
  }
  return absl::OkStatus();
}

absl::Status check_envelope_size(const std::string& bytes) {
  if (bytes.size() <= kMaxEnvelopeBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("its values take ", bytes.size(), " bytes beside their tensors, and at most ",
                   kMaxEnvelopeBytes, " are allowed: pass bulk data as tensors"));
}

}  // namespace sinew::internal
