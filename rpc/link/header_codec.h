#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/link/link_messages.h"
#include "sinew/rpc/transport/header_bytes.h"

namespace sinew::internal {

// A LinkHeader as the bytes of proto::LinkHeader, without the message in between: one travels with
// each frame, and protobuf's own code for it allocates, at both ends.

HeaderBytes write_header(const LinkHeader& header);
/// Into a header that nothing was read into before. kInvalidArgument for what no worker writes;
/// then it holds some of that.
absl::Status read_header(absl::string_view bytes, LinkHeader& header);

}  // namespace sinew::internal
