#include "sinew/rpc/calls/envelope.h"

#include <google/protobuf/message.h>

#include "absl/strings/str_cat.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/wire/bounded_parse.h"
#include "sinew/rpc/wire/message_context.h"

namespace sinew::internal {

absl::Status parse_envelope(const std::string& bytes, google::protobuf::MessageLite& envelope) {
  if (bytes.size() > kMaxEnvelopeBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a message of ", bytes.size(), " bytes apart from its tensors is refused; at most ",
        kMaxEnvelopeBytes, " are allowed"));
  }
  // None of the protocol's messages is a lite one.
  return parse_bounded(bytes, static_cast<google::protobuf::Message&>(envelope));
}

absl::Status check_envelope_size(const std::string& bytes,
                                 const google::protobuf::Message& envelope) {
  // Protobuf writes nothing at all then.
  if (bytes.empty()) {
    return absl::ResourceExhaustedError(
        "its values take more than 2 GiB apart from their tensors: pass bulk data as tensors");
  }
  if (bytes.size() > kMaxEnvelopeBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "its values take ", bytes.size(), " bytes apart from their tensors, and at most ",
        kMaxEnvelopeBytes, " are allowed: pass bulk data as tensors"));
  }
  return check_parts(bytes, *envelope.GetDescriptor());
}

}  // namespace sinew::internal
