#include "sinew/rpc/link/header_codec.h"

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "google/protobuf/io/coded_stream.h"
#include "sinew/rpc/base/internal/malformed.h"
#include "sinew/rpc/link/link_codec.h"
#include "sinew/rpc/transport/frame.h"

namespace sinew::internal {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// Fields of LinkHeader in protos/sinew/link.proto, all below 16: their tags have one byte.
constexpr std::uint32_t kKind = 1;
constexpr std::uint32_t kNumber = 2;
constexpr std::uint32_t kSubject = 3;
constexpr std::uint32_t kTimeLeft = 4;
constexpr std::uint32_t kIsVoid = 5;
constexpr std::uint32_t kBytes = 6;
constexpr std::uint32_t kReceivedControl = 7;
constexpr std::uint32_t kReceivedCalls = 8;
constexpr std::uint32_t kReturnedFrames = 9;
constexpr std::uint32_t kReturnedBytes = 10;
constexpr std::uint32_t kBeat = 11;
constexpr std::uint32_t kBeatReply = 12;
constexpr std::uint32_t kIsGoodbye = 13;

constexpr std::uint32_t varint_tag(std::uint32_t field) { return field << 3; }
constexpr std::uint32_t packed_tag(std::uint32_t field) { return field << 3 | 2; }

constexpr std::size_t kMaxVarintBytes = 10;
constexpr std::size_t kMaxNumberFields = 11;

std::uint8_t* put(std::uint32_t field, std::uint64_t value, std::uint8_t* at) {
  if (value == 0) return at;
  *at++ = static_cast<std::uint8_t>(varint_tag(field));
  return CodedOutputStream::WriteVarint64ToArray(value, at);
}

std::uint8_t* put(std::uint32_t field, const NumberRanges& ranges, std::uint8_t* at) {
  if (ranges.empty()) return at;
  std::size_t size = 0;
  for (const NumberRange& range : ranges) {
    size += CodedOutputStream::VarintSize64(range.first);
    size += CodedOutputStream::VarintSize64(range.last);
  }
  *at++ = static_cast<std::uint8_t>(packed_tag(field));
  at = CodedOutputStream::WriteVarint32ToArray(static_cast<std::uint32_t>(size), at);
  for (const NumberRange& range : ranges) {
    at = CodedOutputStream::WriteVarint64ToArray(range.first, at);
    at = CodedOutputStream::WriteVarint64ToArray(range.last, at);
  }
  return at;
}

bool read_ranges(CodedInputStream& input, NumberRanges& ranges) {
  std::uint32_t size = 0;
  // Said once, or not at all.
  if (!ranges.empty() || !input.ReadVarint32(&size)) return false;
  if (input.BytesUntilLimit() < 0 || size > static_cast<std::uint32_t>(input.BytesUntilLimit())) {
    return false;
  }
  const CodedInputStream::Limit outer = input.PushLimit(static_cast<int>(size));
  while (input.BytesUntilLimit() > 0) {
    NumberRange range;
    if (!input.ReadVarint64(&range.first) || !input.ReadVarint64(&range.last)) return false;
    if (range.first == 0 || range.last < range.first) return false;
    ranges.push_back(range);
  }
  input.PopLimit(outer);
  return true;
}

bool read_flag(CodedInputStream& input, bool& flag) {
  std::uint64_t value = 0;
  if (!input.ReadVarint64(&value)) return false;
  flag = value != 0;
  return true;
}

bool read_kind(CodedInputStream& input, FrameKind& kind) {
  std::uint64_t value = 0;
  if (!input.ReadVarint64(&value)) return false;
  if (value > static_cast<std::uint64_t>(FrameKind::kControl)) return false;
  kind = static_cast<FrameKind>(value);
  return true;
}

bool read_time_left(CodedInputStream& input, std::chrono::microseconds& time_left) {
  std::uint64_t value = 0;
  if (!input.ReadVarint64(&value)) return false;
  if (value != 0) time_left = read_duration(value - 1);
  return true;
}

// Both ends speak one version of the protocol, as their hellos say: there are no fields that one of
// them does not know.
bool read_field(std::uint32_t tag, CodedInputStream& input, LinkHeader& header) {
  switch (tag) {
    case varint_tag(kKind):
      return read_kind(input, header.kind);
    case varint_tag(kNumber):
      return input.ReadVarint64(&header.number);
    case varint_tag(kSubject):
      return input.ReadVarint64(&header.subject);
    case varint_tag(kTimeLeft):
      return read_time_left(input, header.time_left);
    case varint_tag(kIsVoid):
      return read_flag(input, header.is_void);
    case varint_tag(kBytes):
      return input.ReadVarint64(&header.bytes);
    case packed_tag(kReceivedControl):
      return read_ranges(input, header.received[static_cast<std::size_t>(Lane::kControl)]);
    case packed_tag(kReceivedCalls):
      return read_ranges(input, header.received[static_cast<std::size_t>(Lane::kCalls)]);
    case varint_tag(kReturnedFrames):
      return input.ReadVarint64(&header.returned_frames);
    case varint_tag(kReturnedBytes):
      return input.ReadVarint64(&header.returned_bytes);
    case varint_tag(kBeat):
      return input.ReadVarint64(&header.beat);
    case varint_tag(kBeatReply):
      return input.ReadVarint64(&header.beat_reply);
    case varint_tag(kIsGoodbye):
      return read_flag(input, header.is_goodbye);
    default:
      return false;
  }
}

}  // namespace

HeaderBytes write_header(const LinkHeader& header) {
  const NumberRanges& control = header.received[static_cast<std::size_t>(Lane::kControl)];
  const NumberRanges& calls = header.received[static_cast<std::size_t>(Lane::kCalls)];
  // The longest that it can be, on the stack unless it tells of many ranges.
  absl::InlinedVector<std::uint8_t, 512> bytes(
      (1 + kMaxVarintBytes) * kMaxNumberFields + 2 * (1 + kMaxVarintBytes) +
      2 * kMaxVarintBytes * (control.size() + calls.size()));
  std::uint8_t* const begin = bytes.data();
  std::uint8_t* at = put(kKind, static_cast<std::uint64_t>(header.kind), begin);
  at = put(kNumber, header.number, at);
  at = put(kSubject, header.subject, at);
  if (header.time_left.count() >= 0) {
    at = put(kTimeLeft, static_cast<std::uint64_t>(header.time_left.count()) + 1, at);
  }
  if (header.is_void) {
    at = put(kIsVoid, 1, at);
    at = put(kBytes, header.bytes, at);
  }
  at = put(kReceivedControl, control, at);
  at = put(kReceivedCalls, calls, at);
  at = put(kReturnedFrames, header.returned_frames, at);
  at = put(kReturnedBytes, header.returned_bytes, at);
  at = put(kBeat, header.beat, at);
  at = put(kBeatReply, header.beat_reply, at);
  at = put(kIsGoodbye, header.is_goodbye ? 1 : 0, at);
  return absl::string_view(reinterpret_cast<const char*>(begin),
                           static_cast<std::size_t>(at - begin));
}

absl::Status read_header(absl::string_view bytes, LinkHeader& header) {
  if (bytes.size() > kMaxHeaderBytes) return malformed("a frame's header is too long");
  CodedInputStream input(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                         static_cast<int>(bytes.size()));
  input.PushLimit(static_cast<int>(bytes.size()));
  while (input.BytesUntilLimit() > 0) {
    if (!read_field(input.ReadTag(), input, header)) return malformed("no header of a frame");
  }
  if ((header.kind == FrameKind::kLink) != (header.number == 0)) {
    return malformed("a frame without a number, or with one that it should not have");
  }
  return absl::OkStatus();
}

}  // namespace sinew::internal
