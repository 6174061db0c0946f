#include "sinew/groups/internal/call_signature.h"

#include <algorithm>
#include <map>

#include "ATen/core/TensorBody.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/core/ScalarType.h"

namespace sinew::internal {
namespace {

// Function, type, op, root, dimensions, a hash of the whole shape, module.
constexpr std::size_t kHeaderCount = 7;
// Those after them are only in the hash.
constexpr std::size_t kMostDimensions = 10;
constexpr std::int64_t kNoOp = -1;
constexpr int kFunctions = static_cast<int>(Function::kBarrier) + 1;
constexpr int kReduceOps = static_cast<int>(ReduceOp::kMax) + 1;

/// The same in all processes, other than absl::Hash.
std::uint64_t mix(std::uint64_t hash, std::int64_t number) {
  hash ^= static_cast<std::uint64_t>(number) + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 33);
}

std::uint64_t hash_of_shape(const std::vector<std::int64_t>& shape) {
  std::uint64_t hash = mix(0, static_cast<std::int64_t>(shape.size()));
  for (const std::int64_t size : shape) hash = mix(hash, size);
  return hash;
}

bool has_sizes(Function function) {
  return function == Function::kAllToAll || function == Function::kReduceScatter;
}

std::string type_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kBool:
      return "bool";
    case at::kComplexFloat:
      return "complex64";
    case at::kComplexDouble:
      return "complex128";
    default:
      return c10::toString(type);
  }
}

}  // namespace

std::string_view name_of(Function function) {
  switch (function) {
    case Function::kSend:
      return "send";
    case Function::kRecv:
    case Function::kRecvAnySource:
      return "recv";
    case Function::kBroadcast:
      return "broadcast";
    case Function::kAllReduce:
      return "all_reduce";
    case Function::kReduce:
      return "reduce";
    case Function::kScatter:
      return "scatter";
    case Function::kGather:
      return "gather";
    case Function::kAllGather:
      return "all_gather";
    case Function::kReduceScatter:
      return "reduce_scatter";
    case Function::kAllToAll:
      return "all_to_all";
    case Function::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "SUM";
    case ReduceOp::kAverage:
      return "AVG";
    case ReduceOp::kProduct:
      return "PRODUCT";
    case ReduceOp::kMin:
      return "MIN";
    case ReduceOp::kMax:
      return "MAX";
  }
  return "?";
}

std::uint64_t CallSignature::key() const {
  std::uint64_t hash = mix(hash_of_shape(shape), static_cast<std::int64_t>(function));
  hash = mix(hash, static_cast<std::int64_t>(type));
  hash = mix(hash, op ? static_cast<std::int64_t>(*op) : kNoOp);
  return mix(mix(hash, root), module);
}

std::size_t CallSignature::encoded_count(int size) {
  return kHeaderCount + kMostDimensions + 2 * static_cast<std::size_t>(size);
}

std::vector<std::int64_t> CallSignature::encode(int size) const {
  std::vector<std::int64_t> numbers{static_cast<std::int64_t>(function),
                                    static_cast<std::int64_t>(type),
                                    op ? static_cast<std::int64_t>(*op) : kNoOp,
                                    root,
                                    static_cast<std::int64_t>(shape.size()),
                                    static_cast<std::int64_t>(hash_of_shape(shape)),
                                    module};
  numbers.resize(encoded_count(size));
  std::copy_n(shape.begin(), std::min(shape.size(), kMostDimensions),
              numbers.begin() + kHeaderCount);
  const auto sizes = numbers.begin() + kHeaderCount + kMostDimensions;
  std::copy(sent.begin(), sent.end(), sizes);
  std::copy(received.begin(), received.end(), sizes + size);
  return numbers;
}

std::optional<CallSignature> CallSignature::decode(const std::int64_t* numbers, int size) {
  CallSignature signature;
  const std::int64_t dimensions = numbers[4];
  if (numbers[0] < 0 || numbers[0] >= kFunctions || numbers[1] < 0 ||
      numbers[1] >= static_cast<std::int64_t>(at::ScalarType::Undefined) || numbers[2] < kNoOp ||
      numbers[2] >= kReduceOps || numbers[3] < -1 || numbers[3] >= size || dimensions < 0) {
    return std::nullopt;
  }
  signature.function = static_cast<Function>(numbers[0]);
  signature.type = static_cast<at::ScalarType>(numbers[1]);
  if (numbers[2] != kNoOp) signature.op = static_cast<ReduceOp>(numbers[2]);
  signature.root = static_cast<int>(numbers[3]);
  signature.module = numbers[6];
  const auto shown =
      static_cast<std::size_t>(std::min(dimensions, static_cast<std::int64_t>(kMostDimensions)));
  signature.shape.assign(numbers + kHeaderCount, numbers + kHeaderCount + shown);
  // What does not fit stands for itself as one number: it is compared, and nothing else.
  if (dimensions > static_cast<std::int64_t>(kMostDimensions)) {
    signature.shape.push_back(numbers[5]);
  }
  if (has_sizes(signature.function)) {
    const std::int64_t* sizes = numbers + kHeaderCount + kMostDimensions;
    signature.sent.assign(sizes, sizes + size);
    signature.received.assign(sizes + size, sizes + 2 * size);
  }
  return signature;
}

std::string CallSignature::text() const {
  std::string text(name_of(function));
  if (op) absl::StrAppend(&text, "(", std::string(name_of(*op)), ")");
  if (function == Function::kBarrier) return text;
  absl::StrAppend(&text, " of ", type_name(type));
  if (!has_sizes(function)) absl::StrAppend(&text, " [", absl::StrJoin(shape, ", "), "]");
  if (root >= 0) absl::StrAppend(&text, " with root ", root);
  if (module != 0) absl::StrAppend(&text, ", gradients of data-parallel module ", module);
  return text;
}

std::string rank_list(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks[0]);
  constexpr std::size_t kMost = 16;
  if (ranks.size() > kMost) {
    return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.begin() + kMost, ", "),
                        " and ", ranks.size() - kMost, " more");
  }
  return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.end() - 1, ", "), " and ",
                      ranks.back());
}

absl::Status check_agreement(const SignaturesByRank& by_rank) {
  std::map<std::string, std::vector<int>> callers;
  for (const auto& [rank, signature] : by_rank) {
    callers[signature ? signature->text() : "something else"].push_back(rank);
  }
  if (callers.size() > 1) {
    std::vector<std::string> parts;
    for (const auto& [text, ranks] : callers) {
      parts.push_back(
          absl::StrCat(rank_list(ranks), ranks.size() == 1 ? " calls " : " call ", text));
    }
    std::sort(parts.begin(), parts.end());
    return absl::InvalidArgumentError(
        absl::StrCat("the ranks do not agree: ", absl::StrJoin(parts, "; ")));
  }
  for (const auto& [from, sender] : by_rank) {
    if (!sender || !has_sizes(sender->function)) break;
    for (const auto& [to, receiver] : by_rank) {
      const std::int64_t sent = sender->sent[static_cast<std::size_t>(to)];
      const std::int64_t received = receiver->received[static_cast<std::size_t>(from)];
      if (sent == received) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the ranks do not agree about ", sender->text(), ": rank ", from, " has ",
                       sent, " elements for rank ", to, ", which expects ", received));
    }
  }
  return absl::OkStatus();
}

}  // namespace sinew::internal
