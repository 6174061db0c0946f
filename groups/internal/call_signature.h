#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "sinew/groups/internal/backend.h"
#include "sinew/groups/reduce_op.h"

namespace sinew::internal {

/// "all_reduce", "send", ...
std::string_view name_of(Function function);
/// "SUM", "AVG", ...
std::string_view name_of(ReduceOp op);

/// What the ranks of a group must agree about before an operation runs.
struct CallSignature {
  Function function = Function::kBarrier;
  at::ScalarType type = at::kFloat;
  std::optional<ReduceOp> op;
  int root = -1;
  /// The data-parallel module whose gradients these are, as its ranks count them: they meet nothing
  /// else. 0: none's.
  std::int64_t module = 0;
  /// Of the tensor that every rank has, or of one of a list of equal ones.
  std::vector<std::int64_t> shape;
  /// kAllToAll and kReduceScatter: how many elements go to each rank, and come from it. These
  /// differ between ranks.
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received;

  /// Equal for equal ones, `sent` and `received` left out.
  std::uint64_t key() const;
  /// As numbers, for a group of so many; always equally many.
  std::vector<std::int64_t> encode(int size) const;
  static std::size_t encoded_count(int size);
  /// What a rank has sent; nullopt for what is no signature.
  static std::optional<CallSignature> decode(const std::int64_t* numbers, int size);
  /// For people: "all_reduce(SUM) of float32 [3, 4]".
  std::string text() const;
};

/// What ranks call, as far as it is known; nullopt: a rank has sent what is no signature.
using SignaturesByRank = std::map<int, std::optional<CallSignature>>;
/// Whether these ranks call the same; kInvalidArgument names the ranks and what differs.
absl::Status check_agreement(const SignaturesByRank& by_rank);

/// "rank 1", "ranks 0 and 2"
std::string rank_list(const std::vector<int>& ranks);

}  // namespace sinew::internal
