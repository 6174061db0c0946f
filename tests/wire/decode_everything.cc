#include "sinew/tests/wire/decode_everything.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/sum.h"
#include "absl/strings/cord.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/wire/codec.h"
#include "sinew/rpc/wire/message_context.h"
#include "sinew/value.pb.h"
#include "wire_fixture.pb.h"

namespace sinew::testing {
namespace {

struct Tree {
  at::Tensor tensor;
  std::vector<Tree> children;
};

}  // namespace
}  // namespace sinew::testing

SINEW_STRUCT(sinew::testing::Tree, tensor, children);

namespace sinew::testing {
namespace {

// So that wrong strides or indices are seen by the sanitizers.
void touch(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const at::Tensor plain = tensor.detach();
  const at::Tensor dense = plain.is_sparse() ? plain._values() : plain;
  const at::Tensor copy = dense.contiguous().clone();
  const auto* bytes = static_cast<const unsigned char*>(copy.data_ptr());
  volatile unsigned sum = 0;
  for (std::size_t i = 0; i < copy.nbytes(); ++i) sum = sum + bytes[i];
  if (plain.is_sparse() && plain.numel() > 0 && plain.numel() < 100000) plain.to_dense();
}
template <class T>
void touch(const T&) {}

template <class T>
bool decodes_as(const proto::Value& value, const std::vector<absl::Cord>& payloads) {
  try {
    internal::DecodeContext context(payloads);
    touch(Codec<T>::decode(ValueReader(value, context, ValuePath{nullptr, "argument", 1})));
    return true;
  } catch (const RpcError&) {
    return false;
  }
}

template <class... Ts>
std::size_t decode_as(const proto::Value& value, const std::vector<absl::Cord>& payloads) {
  return (std::size_t{decodes_as<Ts>(value, payloads)} + ...);
}

}  // namespace

std::size_t decode_everything(std::string_view bytes) {
  constexpr std::size_t kPayloads = 3;
  constexpr std::size_t kUnitBytes = 8;
  if (bytes.size() < kPayloads) return 0;
  const std::string_view header = bytes.substr(0, kPayloads);
  bytes.remove_prefix(kPayloads);
  std::vector<absl::Cord> payloads;
  for (const char units : header) {
    const std::size_t size = std::min(bytes.size(), kUnitBytes * static_cast<unsigned char>(units));
    payloads.emplace_back(std::string(bytes.substr(0, size)));
    bytes.remove_prefix(size);
  }
  proto::Value value;
  if (!value.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return 0;
  return decode_as<bool, std::int8_t, std::uint64_t, float, double, std::string, Bytes,
                   std::vector<int>, std::vector<double>, std::vector<bool>, std::vector<float>,
                   std::vector<std::uint8_t>, std::array<int, 2>, std::vector<std::vector<int>>,
                   std::tuple<int, std::string, double>, std::optional<std::vector<std::string>>,
                   std::map<std::string, int>, std::unordered_map<int, std::vector<std::string>>,
                   std::set<std::string>, at::Tensor, std::vector<at::Tensor>,
                   std::map<std::string, at::Tensor>, WorkerInfo, Tree, Pose, at::Scalar,
                   std::vector<at::Scalar>, std::chrono::duration<std::int16_t>,
                   std::chrono::duration<double>, std::variant<int, std::string, at::Tensor>,
                   std::vector<std::variant<int, std::string, at::Tensor>>,
                   std::vector<std::variant<Tree, std::vector<std::string>>>>(value, payloads);
}

}  // namespace sinew::testing
