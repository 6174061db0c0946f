#include "sinew/rpc/wire/codec_basic.h"

#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "c10/core/Scalar.h"
#include "google/protobuf/message.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/wire/absl_view.h"
#include "sinew/rpc/wire/codec_chrono.h"

namespace sinew {
namespace internal {

std::string message_signature(const google::protobuf::Message& message) {
  return absl::StrCat("message<", message.GetTypeName(), ">");
}

std::string duration_signature(std::string_view count, std::intmax_t numerator,
                               std::intmax_t denominator) {
  return absl::StrCat("duration<", absl_view(count), ",", numerator, "/", denominator, ">");
}

}  // namespace internal

void Codec<bool>::encode(ValueWriter& writer, const bool& value) { writer.boolean(value); }
bool Codec<bool>::decode(const ValueReader& reader) { return reader.boolean(); }
std::string Codec<bool>::signature() { return "boolean"; }

void Codec<float>::encode(ValueWriter& writer, const float& value) { writer.real(value); }
float Codec<float>::decode(const ValueReader& reader) { return reader.real32(); }
std::string Codec<float>::signature() { return "real"; }

void Codec<double>::encode(ValueWriter& writer, const double& value) { writer.real(value); }
double Codec<double>::decode(const ValueReader& reader) { return reader.real(); }
std::string Codec<double>::signature() { return "real"; }

void Codec<std::string>::encode(ValueWriter& writer, const std::string& value) {
  writer.string(value);
}
std::string Codec<std::string>::decode(const ValueReader& reader) {
  return std::string(reader.string());
}
std::string Codec<std::string>::signature() { return "text"; }

void Codec<Bytes>::encode(ValueWriter& writer, const Bytes& value) { writer.binary(value.data); }
Bytes Codec<Bytes>::decode(const ValueReader& reader) { return Bytes(reader.binary()); }
std::string Codec<Bytes>::signature() { return "binary"; }

void Codec<std::monostate>::encode(ValueWriter& writer, const std::monostate&) { writer.null(); }
std::monostate Codec<std::monostate>::decode(const ValueReader& reader) {
  reader.null();
  return {};
}
std::string Codec<std::monostate>::signature() { return "null"; }

void Codec<void>::encode(ValueWriter& writer) { writer.null(); }
void Codec<void>::decode(const ValueReader& reader) { reader.null(); }
std::string Codec<void>::signature() { return "null"; }

void Codec<WorkerInfo>::encode(ValueWriter& writer, const WorkerInfo& value) {
  ListWriter list = writer.list(3);
  list.next().string(value.name);
  list.next().integer(value.rank);
  list.next().natural(value.incarnation.value);
}
WorkerInfo Codec<WorkerInfo>::decode(const ValueReader& reader) {
  const ListReader list = reader.list(3);
  WorkerInfo value;
  value.name = Codec<std::string>::decode(list.item(0));
  value.rank = Codec<std::int32_t>::decode(list.item(1));
  value.incarnation.value = list.item(2).natural();
  return value;
}
std::string Codec<WorkerInfo>::signature() { return "tuple<text,integer,integer>"; }

void Codec<at::Tensor>::encode(ValueWriter& writer, const at::Tensor& value) {
  writer.tensor(value);
}
at::Tensor Codec<at::Tensor>::decode(const ValueReader& reader) { return reader.tensor(); }
std::string Codec<at::Tensor>::signature() { return "tensor"; }

namespace {

std::int64_t integer_of(const c10::Scalar& value) {
  try {
    return value.toLong();
  } catch (const c10::Error&) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   "an integer at::Scalar above 2^63-1 cannot travel; pass a std::uint64_t");
  }
}

}  // namespace

void Codec<c10::Scalar>::encode(ValueWriter& writer, const c10::Scalar& value) {
  if (value.isSymbolic()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   "a symbolic at::Scalar stands for no number yet, so it cannot travel");
  }
  if (value.isComplex()) {
    const c10::complex<double> number = value.toComplexDouble();
    const absl::Span<double> parts = writer.reals(2);
    parts[0] = number.real();
    parts[1] = number.imag();
  } else if (value.isBoolean()) {
    writer.boolean(value.toBool());
  } else if (value.isFloatingPoint()) {
    writer.real(value.toDouble());
  } else {
    writer.integer(integer_of(value));
  }
}
c10::Scalar Codec<c10::Scalar>::decode(const ValueReader& reader) {
  switch (reader.kind()) {
    case ValueKind::kBoolean:
      return reader.boolean();
    case ValueKind::kInteger:
      return reader.integer();
    case ValueKind::kReal:
      return reader.real();
    case ValueKind::kList: {
      const ListReader parts = reader.list(2);
      const double real = Codec<double>::decode(parts.item(0));
      return c10::complex<double>(real, Codec<double>::decode(parts.item(1)));
    }
    default:
      reader.fail_kind("a scalar");
  }
}
std::string Codec<c10::Scalar>::signature() { return "scalar"; }

}  // namespace sinew
