#include "sinew/rpc/transport/transport.h"

#include "absl/strings/str_cat.h"

namespace sinew::internal {

absl::Status ConnectionHandler::on_announced(const std::shared_ptr<Connection>&, Lane,
                                             absl::string_view, std::uint64_t, std::size_t) {
  return absl::OkStatus();
}

// Who does not know of it has a connection that swallows frames: none is better.
void ConnectionHandler::on_lost(const std::shared_ptr<Connection>& connection, Lane,
                                absl::string_view, std::uint64_t, std::size_t,
                                const absl::Status& reason) {
  connection->close(reason);
}

absl::Status check_limits(const Frame& frame, const Transport::Limits& limits) {
  if (frame.header.size() > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a frame has a header of ", frame.header.size(),
                                                   " bytes; the limit is ", kMaxHeaderBytes));
  }
  if (frame.size_bytes() > limits.max_frame_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a frame has ", frame.size_bytes(),
                                                   " bytes; the limit of ", limits.max_frame_bytes,
                                                   " is Transport::Limits::max_frame_bytes"));
  }
  if (frame.payloads.size() > limits.max_payloads) {
    return absl::InvalidArgumentError(absl::StrCat("a frame has ", frame.payloads.size(),
                                                   " payloads; the limit of ", limits.max_payloads,
                                                   " is Transport::Limits::max_payloads"));
  }
  return absl::OkStatus();
}

}  // namespace sinew::internal
