#include "sinew/groups/internal/store_frames.h"

#include <cstdint>
#include <string_view>

#include "absl/strings/str_format.h"
#include "sinew/rpc/wire/bounded_parse.h"

namespace sinew::internal {
namespace {

constexpr char kProtocol[] = "sinew.store";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kLengthBytes = 4;
// Bytes that have been read are dropped in batches of that size.
constexpr std::size_t kCompactBytes = std::size_t{64} << 10;

}  // namespace

std::string seal_frame(const proto::StoreFrame& frame) {
  const std::string body = frame.SerializeAsString();
  std::string sealed;
  sealed.reserve(kLengthBytes + body.size());
  for (std::size_t byte = 0; byte < kLengthBytes; ++byte) {
    sealed.push_back(static_cast<char>(body.size() >> (8 * byte)));
  }
  return sealed += body;
}

proto::StoreFrame greeting_frame() {
  proto::StoreFrame frame;
  frame.mutable_greeting()->set_protocol(kProtocol);
  frame.mutable_greeting()->set_version(kVersion);
  return frame;
}

absl::Status check_greeting(const proto::StoreFrame& frame) {
  if (!frame.has_greeting() || frame.greeting().protocol() != kProtocol) {
    return absl::FailedPreconditionError("it is no store");
  }
  if (frame.greeting().version() != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("its store is of version %d, and this one of version %d: use the same "
                        "release of Sinew in all processes",
                        frame.greeting().version(), kVersion));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<proto::StoreFrame>> FrameReader::next(std::size_t max_bytes) {
  const std::string_view rest = std::string_view(bytes_).substr(read_);
  if (rest.size() < kLengthBytes) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t byte = 0; byte < kLengthBytes; ++byte) {
    length |= std::size_t{static_cast<unsigned char>(rest[byte])} << (8 * byte);
  }
  if (length > max_bytes) return absl::InvalidArgumentError("it has sent what is no frame");
  if (rest.size() - kLengthBytes < length) return std::nullopt;
  proto::StoreFrame frame;
  const absl::Status parsed = parse_bounded(rest.substr(kLengthBytes, length), frame);
  if (!parsed.ok()) return parsed;
  read_ += kLengthBytes + length;
  if (read_ == bytes_.size() || read_ >= kCompactBytes) {
    bytes_.erase(0, read_);
    read_ = 0;
  }
  return frame;
}

}  // namespace sinew::internal
