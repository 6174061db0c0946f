#include "sinew/rpc/wire/codec_containers.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/wire/absl_view.h"
#include "sinew/rpc/wire/codec_maps.h"
#include "sinew/rpc/wire/codec_struct.h"
#include "sinew/rpc/wire/codec_variant.h"

namespace sinew {
namespace internal {

std::string list_signature(std::string_view item) {
  return absl::StrCat("list<", absl_view(item), ">");
}

std::string map_signature(std::string_view key, std::string_view value) {
  return absl::StrCat("map<", absl_view(key), ",", absl_view(value), ">");
}

std::string tuple_signature(std::initializer_list<std::string> parts) {
  return absl::StrCat("tuple<", absl::StrJoin(parts, ","), ">");
}

std::string optional_signature(std::string_view value) {
  return absl::StrCat("optional<", absl_view(value), ">");
}

std::string variant_signature(std::initializer_list<std::string> alternatives) {
  return absl::StrCat("variant<", absl::StrJoin(alternatives, ","), ">");
}

void fail_valueless_variant() {
  throw RpcError(ErrorCode::kInvalidArgument,
                 "a std::variant that an exception has left without a value cannot travel");
}

void fail_repeated_item(const ValueReader& item) { item.fail("it repeats an earlier one"); }

void fail_binary_size(const ValueReader& reader, std::size_t expected) {
  reader.fail(
      absl::StrCat("expected a binary of ", expected, " bytes, got ", reader.binary().size()));
}

namespace {

// Signatures are made by plain recursion through Codec<T>::signature(), which has no argument to
// carry this.
thread_local const SignatureScope* innermost_scope = nullptr;

}  // namespace

SignatureScope::SignatureScope(const void* type) : type_(type), outer_(innermost_scope) {
  for (const SignatureScope* scope = outer_; scope != nullptr; scope = scope->outer_) {
    if (scope->type_ == type) entered_before_ = true;
  }
  innermost_scope = this;
}

SignatureScope::~SignatureScope() { innermost_scope = outer_; }

}  // namespace internal

void Codec<std::vector<bool>>::encode(ValueWriter& writer, const std::vector<bool>& value) {
  ListWriter list = writer.list(value.size());
  for (const bool item : value) list.next().boolean(item);
}

std::vector<bool> Codec<std::vector<bool>>::decode(const ValueReader& reader) {
  const ListReader list = reader.list();
  std::vector<bool> result;
  result.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) result.push_back(list.item(i).boolean());
  return result;
}

std::string Codec<std::vector<bool>>::signature() { return "list<boolean>"; }

}  // namespace sinew
