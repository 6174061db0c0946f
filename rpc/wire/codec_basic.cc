#include "sinew/rpc/wire/codec_basic.h"

#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/message.h"
#include "sinew/rpc/base/ids.h"

namespace sinew {
namespace internal {

std::string message_signature(const google::protobuf::Message& message) {
  return absl::StrCat("message<", message.GetTypeName(), ">");
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

}  // namespace sinew
