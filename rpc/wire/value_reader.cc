#include "sinew/rpc/wire/value_reader.h"

#include <cmath>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/message.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/wire/absl_view.h"
#include "sinew/rpc/wire/bounded_parse.h"
#include "sinew/rpc/wire/message_context.h"
#include "sinew/rpc/wire/tensor_codec.h"
#include "sinew/value.pb.h"

namespace sinew {
namespace {

using Kind = proto::Value::KindCase;

// With its article, as it stands in "expected an integer, got a text".
const char* kind_text(ValueKind kind) {
  switch (kind) {
    case ValueKind::kNull:
      return "null";
    case ValueKind::kBoolean:
      return "a boolean";
    case ValueKind::kInteger:
      return "an integer";
    case ValueKind::kReal:
      return "a real";
    case ValueKind::kText:
      return "a text";
    case ValueKind::kBinary:
      return "a binary";
    case ValueKind::kList:
      return "a list";
    case ValueKind::kMap:
      return "a map";
    case ValueKind::kTensor:
      return "a tensor";
    case ValueKind::kReference:
      return "a reference";
    case ValueKind::kMessage:
      return "a message";
  }
  return "a value of an unknown kind";
}

ValueKind kind_of(const proto::Value& value) {
  switch (value.kind_case()) {
    case Kind::KIND_NOT_SET:
      return ValueKind::kNull;
    case Kind::kBoolean:
      return ValueKind::kBoolean;
    case Kind::kInteger:
    case Kind::kNatural:
      return ValueKind::kInteger;
    case Kind::kReal:
      return ValueKind::kReal;
    case Kind::kText:
      return ValueKind::kText;
    case Kind::kBinary:
      return ValueKind::kBinary;
    case Kind::kList:
    case Kind::kReals:
    case Kind::kIntegers:
      return ValueKind::kList;
    case Kind::kMap:
      return ValueKind::kMap;
    case Kind::kTensor:
      return ValueKind::kTensor;
    case Kind::kReference:
      return ValueKind::kReference;
    case Kind::kMessage:
      return ValueKind::kMessage;
  }
  return ValueKind::kNull;
}

// The type is named behind the last slash; what is before it names a server that is not asked.
std::string_view type_name(std::string_view type_url) {
  const std::size_t slash = type_url.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : type_url.substr(slash + 1);
}

// Of the lists that every packed or plain form is.
std::size_t items_of(const proto::Value& value) {
  switch (value.kind_case()) {
    case Kind::kList:
      return static_cast<std::size_t>(value.list().items_size());
    case Kind::kReals:
      return static_cast<std::size_t>(value.reals().items_size());
    default:
      return static_cast<std::size_t>(value.integers().items_size());
  }
}

constexpr std::size_t kMaxShownBytes = 200;

}  // namespace

std::string ValuePath::text() const {
  std::vector<const ValuePath*> frames;
  for (const ValuePath* frame = this; frame != nullptr; frame = frame->outer)
    frames.push_back(frame);
  std::string text;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    if (!text.empty()) text += ", ";
    text += (*frame)->noun;
    if ((*frame)->number != 0) absl::StrAppend(&text, " ", (*frame)->number);
  }
  return text;
}

ValueReader::ValueReader(const proto::Value& value, internal::DecodeContext& context,
                         ValuePath path)
    : value_(&value), context_(context), path_(path), nesting_(0) {
  count();
}

ValueReader::ValueReader(const ValueReader& outer, const char* noun, std::size_t index,
                         const proto::Value* value, Source source, Packed packed)
    : value_(value),
      context_(outer.context_),
      path_{&outer.path_, noun, index + 1},
      packed_(packed),
      nesting_(outer.nesting_ + 1),
      source_(source) {
  count();
}

void ValueReader::count() const {
  const internal::DecodeLimits& limits = context_.limits();
  if (++context_.values_seen > limits.max_values) {
    throw RpcError(ErrorCode::kResourceExhausted,
                   absl::StrCat(path_.text(), ": the message has more than ", limits.max_values,
                                " values; pass bulk data as tensors"));
  }
  if (nesting_ > limits.max_nesting) {
    throw RpcError(ErrorCode::kResourceExhausted,
                   absl::StrCat(path_.text(), ": more than ", limits.max_nesting,
                                " lists or maps within each other"));
  }
}

void ValueReader::fail(std::string_view problem) const {
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrCat(path_.text(), ": ", internal::absl_view(problem)));
}

void ValueReader::fail_kind(std::string_view wanted) const {
  fail(absl::StrCat("expected ", internal::absl_view(wanted), ", got ", kind_text(kind())));
}

ValueKind ValueReader::kind() const {
  switch (source_) {
    case Source::kPackedReal:
      return ValueKind::kReal;
    case Source::kPackedInteger:
      return ValueKind::kInteger;
    case Source::kValue:
      break;
  }
  return kind_of(*value_);
}

void ValueReader::null() const {
  if (!is_null()) fail_kind("null");
}

bool ValueReader::boolean() const {
  if (source_ != Source::kValue || value_->kind_case() != Kind::kBoolean) fail_kind("a boolean");
  return value_->boolean();
}

std::int64_t ValueReader::integer(std::int64_t min, std::int64_t max) const {
  const auto refuse = [&](auto value) {
    fail(absl::StrCat(value, " is outside of the range ", min, " to ", max));
  };
  std::int64_t value = 0;
  if (source_ == Source::kPackedInteger) {
    value = packed_.integer;
  } else if (source_ == Source::kValue && value_->kind_case() == Kind::kInteger) {
    value = value_->integer();
  } else if (source_ == Source::kValue && value_->kind_case() == Kind::kNatural) {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (value_->natural() > kMax) refuse(value_->natural());
    value = static_cast<std::int64_t>(value_->natural());
  } else {
    fail_kind("an integer");
  }
  if (value < min || value > max) refuse(value);
  return value;
}

std::uint64_t ValueReader::natural(std::uint64_t max) const {
  const auto refuse = [&](auto value) {
    fail(absl::StrCat(value, " is outside of the range 0 to ", max));
  };
  std::uint64_t value = 0;
  if (source_ == Source::kValue && value_->kind_case() == Kind::kNatural) {
    value = value_->natural();
  } else {
    const std::int64_t number = integer();
    if (number < 0) refuse(number);
    value = static_cast<std::uint64_t>(number);
  }
  if (value > max) refuse(value);
  return value;
}

double ValueReader::real() const {
  if (source_ == Source::kPackedReal) return packed_.real;
  if (source_ == Source::kValue && value_->kind_case() == Kind::kReal) return value_->real();
  const bool is_integer = source_ == Source::kPackedInteger ||
                          value_->kind_case() == Kind::kInteger ||
                          (source_ == Source::kValue && value_->kind_case() == Kind::kNatural);
  if (!is_integer) fail_kind("a real");
  constexpr std::int64_t kExact = std::int64_t{1} << std::numeric_limits<double>::digits;
  return static_cast<double>(integer(-kExact, kExact));
}

float ValueReader::real32() const {
  const double value = real();
  if (std::isfinite(value) && std::fabs(value) > std::numeric_limits<float>::max()) {
    fail(absl::StrCat(value, " is beyond the range of a 32-bit real"));
  }
  return static_cast<float>(value);
}

std::string_view ValueReader::text() const {
  if (source_ != Source::kValue || value_->kind_case() != Kind::kText) fail_kind("a text");
  return value_->text();
}

std::string_view ValueReader::binary() const {
  if (source_ != Source::kValue || value_->kind_case() != Kind::kBinary) fail_kind("a binary");
  return value_->binary();
}

std::string_view ValueReader::string() const {
  if (source_ == Source::kValue && value_->kind_case() == Kind::kBinary) return value_->binary();
  return text();
}

ListReader ValueReader::list() const& {
  if (source_ != Source::kValue) fail_kind("a list");
  switch (value_->kind_case()) {
    case Kind::kList:
    case Kind::kReals:
    case Kind::kIntegers:
      return ListReader(*this, items_of(*value_));
    default:
      fail_kind("a list");
  }
}

ListReader ValueReader::list(std::size_t size) const& {
  const std::size_t got = list().size();
  if (got != size) {
    fail(absl::StrCat("expected a list of ", size, size == 1 ? " item" : " items", ", got one of ",
                      got));
  }
  return ListReader(*this, got);
}

MapReader ValueReader::map() const& {
  if (source_ != Source::kValue || value_->kind_case() != Kind::kMap) fail_kind("a map");
  const proto::ValueMap& map = value_->map();
  if (map.keys_size() != map.values_size()) {
    fail(absl::StrCat("a map has ", map.keys_size(), " keys and ", map.values_size(), " values"));
  }
  return MapReader(*this, static_cast<std::size_t>(map.keys_size()));
}

at::Tensor ValueReader::tensor() const {
  if (source_ != Source::kValue || value_->kind_case() != Kind::kTensor) fail_kind("a tensor");
  return internal::decode_tensor(value_->tensor(), context_, path_);
}

void ValueReader::message(google::protobuf::Message& message) const {
  if (source_ != Source::kValue || value_->kind_case() != Kind::kMessage) fail_kind("a message");
  const google::protobuf::Any& any = value_->message();
  const std::string_view sent = type_name(any.type_url());
  if (sent != message.GetDescriptor()->full_name()) {
    fail(absl::StrCat("expected a message ", message.GetTypeName(), ", got one with type URL \"",
                      internal::printable(any.type_url(), kMaxShownBytes), "\""));
  }
  const absl::Status parsed = internal::parse_bounded(any.value(), message);
  if (absl::IsResourceExhausted(parsed)) {
    throw RpcError(ErrorCode::kResourceExhausted,
                   absl::StrCat(path_.text(), ": a message ", message.GetTypeName(),
                                " is refused: ", parsed.message()));
  }
  if (!parsed.ok()) {
    fail(absl::StrCat("the bytes of a message ", message.GetTypeName(), " do not parse"));
  }
}

const proto::Reference& ValueReader::reference() const {
  if (source_ != Source::kValue || value_->kind_case() != Kind::kReference) {
    fail_kind("a reference");
  }
  return value_->reference();
}

ValueReader ListReader::item(std::size_t index) const {
  if (index >= size_) {
    reader_.fail(absl::StrCat("expected at least ", index + 1, " items, got ", size_));
  }
  using Source = ValueReader::Source;
  const proto::Value& value = *reader_.value_;
  const int i = static_cast<int>(index);
  ValueReader::Packed packed{};
  switch (value.kind_case()) {
    case Kind::kReals:
      packed.real = value.reals().items(i);
      return ValueReader(reader_, "item", index, nullptr, Source::kPackedReal, packed);
    case Kind::kIntegers:
      packed.integer = value.integers().items(i);
      return ValueReader(reader_, "item", index, nullptr, Source::kPackedInteger, packed);
    default:
      return ValueReader(reader_, "item", index, &value.list().items(i), Source::kValue, packed);
  }
}

absl::Span<const double> ListReader::packed_reals() const {
  if (!reader_.value_->has_reals()) return {};
  return {reader_.value_->reals().items().data(), size_};
}

absl::Span<const std::int64_t> ListReader::packed_integers() const {
  if (!reader_.value_->has_integers()) return {};
  return {reader_.value_->integers().items().data(), size_};
}

ValueReader MapReader::key(std::size_t index) const {
  if (index >= size_) reader_.fail(absl::StrCat("expected ", index + 1, " keys, got ", size_));
  return ValueReader(reader_, "key", index, &reader_.value_->map().keys(static_cast<int>(index)),
                     ValueReader::Source::kValue, {});
}

ValueReader MapReader::value(std::size_t index) const {
  if (index >= size_) reader_.fail(absl::StrCat("expected ", index + 1, " values, got ", size_));
  return ValueReader(reader_, "value", index,
                     &reader_.value_->map().values(static_cast<int>(index)),
                     ValueReader::Source::kValue, {});
}

}  // namespace sinew
