#include "sinew/rpc/wire/bounded_parse.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/wire_format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormat;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Where the parser stops.
constexpr int kMaxDepth = 100;
// On the wire no part is shorter: a tag, and a length or a value. An item of a packed list has a
// byte.
constexpr std::size_t kMinPartBytes = 2;
constexpr std::size_t kTooShortBytes = std::min(kMaxMessageParts * kMinPartBytes, kMaxPackedItems);

/// Walks a serialised message by the tags of its fields.
class PartCounter {
 public:
  explicit PartCounter(std::string_view bytes)
      : in_(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size())) {}

  absl::Status walk(const Descriptor& type, int depth) {
    if (depth > kMaxDepth) return malformed();
    while (const std::uint32_t tag = in_.ReadTag()) {
      if (absl::Status walked = field(type, tag, depth); !walked.ok()) return walked;
      if (parts_ > kMaxMessageParts) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "the message has more than ", kMaxMessageParts,
            " values, texts and other parts apart from its tensors: pass long lists of "
            "numbers as vectors of integers or reals, which travel packed as one "
            "part, and bulk data as tensors"));
      }
      if (items_ > kMaxPackedItems) {
        return absl::ResourceExhaustedError(
            absl::StrCat("the packed lists of the message have more than ", kMaxPackedItems,
                         " numbers: pass bulk data as tensors"));
      }
    }
    return in_.ConsumedEntireMessage() ? absl::OkStatus() : malformed();
  }

 private:
  static absl::Status malformed() {
    return absl::InvalidArgumentError("a message could not be parsed");
  }

  absl::Status field(const Descriptor& type, std::uint32_t tag, int depth) {
    const auto wire = WireFormatLite::GetTagWireType(tag);
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const bool packed = field != nullptr && field->is_packable() &&
                        wire == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    // A field of another wire type is kept with the unknown fields.
    const bool known =
        field != nullptr && (packed || wire == WireFormat::WireTypeForFieldType(field->type()));
    if (!known) {
      ++parts_;
    } else if (field->is_repeated()) {
      ++items_;
    }
    switch (wire) {
      case WireFormatLite::WIRETYPE_VARINT:
      case WireFormatLite::WIRETYPE_FIXED32:
      case WireFormatLite::WIRETYPE_FIXED64:
        return WireFormatLite::SkipField(&in_, tag) ? absl::OkStatus() : malformed();
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return delimited(known ? field : nullptr, packed, depth);
      default:
        // Groups: they are not sent, and what is in one would have to be walked as well.
        return malformed();
    }
  }

  /// `field` is null when it is unknown.
  absl::Status delimited(const FieldDescriptor* field, bool packed, int depth) {
    int size = 0;
    if (!in_.ReadVarintSizeAsInt(&size) || size < 0 || size > left()) return malformed();
    if (packed) return packed_list(*field, size);
    if (field != nullptr) ++parts_;
    if (field == nullptr || field->message_type() == nullptr) {
      return in_.Skip(size) ? absl::OkStatus() : malformed();
    }
    const CodedInputStream::Limit outer = in_.PushLimit(size);
    absl::Status walked = walk(*field->message_type(), depth + 1);
    in_.PopLimit(outer);
    return walked;
  }

  absl::Status packed_list(const FieldDescriptor& field, int size) {
    const void* data = nullptr;
    int available = 0;
    if (size > 0 && (!in_.GetDirectBufferPointer(&data, &available) || available < size)) {
      return malformed();
    }
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    switch (WireFormat::WireTypeForFieldType(field.type())) {
      case WireFormatLite::WIRETYPE_FIXED64:
        items_ += static_cast<std::size_t>(size) / sizeof(std::uint64_t);
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        items_ += static_cast<std::size_t>(size) / sizeof(std::uint32_t);
        break;
      default:
        // The last byte of each number has no continuation bit.
        items_ += static_cast<std::size_t>(
            std::count_if(bytes, bytes + size, [](std::uint8_t byte) { return byte < 0x80; }));
    }
    return in_.Skip(size) ? absl::OkStatus() : malformed();
  }

  /// Up to the end of the message that is walked.
  int left() {
    const int limited = in_.BytesUntilLimit();
    return limited >= 0 ? limited : in_.BytesUntilTotalBytesLimit();
  }

  CodedInputStream in_;
  std::size_t parts_ = 0;
  std::size_t items_ = 0;
};

absl::Status no_memory(std::size_t size_bytes) {
  try {
    return absl::ResourceExhaustedError(
        absl::StrCat("there is no memory for a message of ", size_bytes, " bytes"));
  } catch (const std::bad_alloc&) {
    // Without a text it needs none.
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

}  // namespace

absl::Status check_parts(std::string_view bytes, const Descriptor& type) {
  if (bytes.size() <= kTooShortBytes) return absl::OkStatus();
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return absl::InvalidArgumentError("a message could not be parsed");
  }
  return PartCounter(bytes).walk(type, 0);
}

absl::Status parse_bounded(std::string_view bytes, google::protobuf::Message& message) {
  // The first look at a descriptor takes memory.
  if (bytes.size() > kTooShortBytes) {
    if (absl::Status fits = check_parts(bytes, *message.GetDescriptor()); !fits.ok()) return fits;
  }
  try {
    if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return absl::OkStatus();
    }
  } catch (const std::bad_alloc&) {
    return no_memory(bytes.size());
  }
  return absl::InvalidArgumentError("a message could not be parsed");
}

}  // namespace sinew::internal
