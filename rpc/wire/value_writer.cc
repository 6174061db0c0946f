#include "sinew/rpc/wire/value_writer.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "google/protobuf/message.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/wire/message_context.h"
#include "sinew/rpc/wire/tensor_codec.h"
#include "sinew/rpc/wire/utf8.h"
#include "sinew/value.pb.h"

namespace sinew {
namespace {

// Repeated fields count in int.
int checked_size(std::size_t size) {
  if (size > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw RpcError(
        ErrorCode::kInvalidArgument,
        absl::StrCat("a list of ", size, " numbers is too long for a message; pass a tensor"));
  }
  return static_cast<int>(size);
}

// A message has at most 2 GiB, so more than that in one string can never be sent.
void check_size_bytes(std::string_view bytes) {
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrCat("a string of ", bytes.size(),
                                " bytes is too long for a message; pass a tensor of at::kByte"));
  }
}

// For reservations, where less is no error.
int capped_size(std::size_t size) {
  constexpr std::size_t kMax = 1 << 20;
  return static_cast<int>(size < kMax ? size : kMax);
}

}  // namespace

proto::Value& ValueWriter::claim() {
  if (written_) {
    throw RpcError(
        ErrorCode::kInternal,
        "a Codec's encode() wrote two values; it must write one, a list if it has several parts");
  }
  written_ = true;
  return value_;
}

int ValueWriter::nesting_of_parts() const {
  if (static_cast<std::size_t>(nesting_) >= internal::kMaxNesting) {
    throw RpcError(ErrorCode::kResourceExhausted,
                   absl::StrCat("the value has more than ", internal::kMaxNesting,
                                " lists or maps within each other; pass a flatter form of it"));
  }
  return nesting_ + 1;
}

void ValueWriter::null() { claim(); }
void ValueWriter::boolean(bool value) { claim().set_boolean(value); }
void ValueWriter::integer(std::int64_t value) { claim().set_integer(value); }

void ValueWriter::natural(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    claim().set_integer(static_cast<std::int64_t>(value));
  } else {
    claim().set_natural(value);
  }
}

void ValueWriter::real(double value) { claim().set_real(value); }

void ValueWriter::text(std::string_view utf8) {
  if (!internal::is_utf8(utf8)) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   "a text is not valid UTF-8; pass bytes that are no text as sinew::Bytes");
  }
  check_size_bytes(utf8);
  claim().set_text(utf8.data(), utf8.size());
}

void ValueWriter::binary(std::string_view bytes) {
  check_size_bytes(bytes);
  claim().set_binary(bytes.data(), bytes.size());
}

void ValueWriter::string(std::string_view bytes) {
  if (internal::is_utf8(bytes)) {
    check_size_bytes(bytes);
    claim().set_text(bytes.data(), bytes.size());
  } else {
    binary(bytes);
  }
}

absl::Span<double> ValueWriter::reals(std::size_t size) {
  const int count = checked_size(size);
  auto& items = *claim().mutable_reals()->mutable_items();
  items.Resize(count, 0.0);
  return {items.mutable_data(), size};
}

absl::Span<std::int64_t> ValueWriter::integers(std::size_t size) {
  const int count = checked_size(size);
  auto& items = *claim().mutable_integers()->mutable_items();
  items.Resize(count, 0);
  return {items.mutable_data(), size};
}

ListWriter ValueWriter::list(std::size_t expected_size) {
  const int nesting = nesting_of_parts();
  proto::ValueList& list = *claim().mutable_list();
  list.mutable_items()->Reserve(capped_size(expected_size));
  return ListWriter(list, context_, nesting);
}

MapWriter ValueWriter::map(std::size_t expected_size) {
  const int nesting = nesting_of_parts();
  proto::ValueMap& map = *claim().mutable_map();
  map.mutable_keys()->Reserve(capped_size(expected_size));
  map.mutable_values()->Reserve(capped_size(expected_size));
  return MapWriter(map, context_, nesting);
}

void ValueWriter::tensor(const at::Tensor& tensor) {
  internal::encode_tensor(tensor, *claim().mutable_tensor(), context_);
}

void ValueWriter::tensor_to(const at::Tensor& tensor, const c10::Device& device) {
  internal::encode_tensor_to(tensor, device, *claim().mutable_tensor(), context_);
}

void ValueWriter::message(const google::protobuf::Message& message) {
  if (message.ByteSizeLong() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw RpcError(
        ErrorCode::kInvalidArgument,
        absl::StrCat("a ", message.GetTypeName(), " of ", message.ByteSizeLong(),
                     " bytes is too large for Protocol Buffers; pass bulk data as tensors"));
  }
  if (!message.IsInitialized()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrCat("a ", message.GetTypeName(),
                                " lacks required fields: ", message.InitializationErrorString()));
  }
  claim().mutable_message()->PackFrom(message);
}

proto::Reference& ValueWriter::reference() { return *claim().mutable_reference(); }

ValueWriter ListWriter::next() { return ValueWriter(*list_.add_items(), context_, nesting_); }
ValueWriter MapWriter::next_key() { return ValueWriter(*map_.add_keys(), context_, nesting_); }
ValueWriter MapWriter::next_value() { return ValueWriter(*map_.add_values(), context_, nesting_); }

}  // namespace sinew
