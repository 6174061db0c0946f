// What Gloo exchanges and reduces by parts, in pieces of a few bytes.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "sinew/groups/internal/backend.h"
#include "sinew/groups/internal/reduction.h"
#include "sinew/tests/groups/ranks.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"

namespace sinew::internal {
namespace {

using Tensors = std::vector<at::Tensor>;
using Backends = std::vector<std::unique_ptr<Backend>>;

constexpr std::size_t kOneElement = 1;
constexpr std::size_t kOneRound = std::size_t{1} << 20;

Backends make_backends(int size, std::size_t piece_bytes) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Backends backends(static_cast<std::size_t>(size));
  testing::run_ranks(size, [&](int rank) {
    BackendRequest request;
    request.store = store;
    request.rank = rank;
    request.size = size;
    for (int each = 0; each < size; ++each) request.job_ranks.push_back(each);
    request.timeout = std::chrono::minutes(1);
    request.listen_host = "127.0.0.1";
    request.group = "parts";
    request.piece_bytes = piece_bytes;
    backends[static_cast<std::size_t>(rank)] = make_gloo_backend(request);
  });
  return backends;
}

/// What `rank` gives to `of`: `count` numbers that are its own.
at::Tensor part(int rank, int of, std::int64_t count, at::ScalarType type) {
  const at::Tensor numbers = at::arange(count, at::kLong) * 3 + 5 * rank + 7 * of;
  return (numbers.remainder(11) + 1).to(type);
}

/// Those that all give to `of`, in the order of ranks.
Tensors parts_for(int size, int of, std::int64_t count, at::ScalarType type) {
  Tensors parts;
  for (int rank = 0; rank < size; ++rank) parts.push_back(part(rank, of, count, type));
  return parts;
}

void expect_reduced(const Backends& backends, const std::vector<std::int64_t>& counts,
                    at::ScalarType type, ReduceOp op) {
  const int size = static_cast<int>(backends.size());
  testing::run_ranks(size, [&](int rank) {
    const auto own = static_cast<std::size_t>(rank);
    Tensors inputs;
    for (int of = 0; of < size; ++of) {
      inputs.push_back(part(rank, of, counts[static_cast<std::size_t>(of)], type));
    }
    Tensors outputs{at::empty({counts[own]}, at::dtype(type))};
    std::vector<Tensors> lists{inputs};
    c10d::ReduceScatterOptions options;
    options.reduceOp = c10d_op(op);
    Backend& backend = *backends[own];
    backend.announce(Function::kReduceScatter, 1);
    backend.c10d().reduce_scatter(outputs, lists, options)->wait();
    const at::Tensor right = at::empty_like(outputs[0]);
    if (counts[own] > 0) reduce_here(parts_for(size, rank, counts[own], type), op, right);
    EXPECT_TRUE(outputs[0].equal(right)) << "rank " << rank << ": " << outputs[0] << right;
  });
}

class Parts : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Parts, AreReducedInPieces) {
  for (const int size : {1, 2, 3}) {
    const Backends backends = make_backends(size, GetParam());
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kLong, at::kBool}) {
      const ReduceOp op = type == at::kBool ? ReduceOp::kMax : ReduceOp::kSum;
      for (const std::int64_t count : {1, 2, 7, 16, 100}) {
        SCOPED_TRACE(absl::StrCat(size, " ranks, ", count, " of ", c10::toString(type)));
        expect_reduced(backends, std::vector<std::int64_t>(static_cast<std::size_t>(size), count),
                       type, op);
      }
    }
    for (const ReduceOp op : {ReduceOp::kAverage, ReduceOp::kProduct, ReduceOp::kMin}) {
      expect_reduced(backends, std::vector<std::int64_t>(static_cast<std::size_t>(size), 9),
                     at::kDouble, op);
    }
  }
}

TEST_P(Parts, OfDifferentSizesAreReducedInPieces) {
  const Backends backends = make_backends(3, GetParam());
  for (const std::vector<std::int64_t>& counts : std::vector<std::vector<std::int64_t>>{
           {5, 1, 30}, {0, 9, 4}, {12, 0, 0}, {0, 0, 0}, {1, 2, 3}}) {
    SCOPED_TRACE(absl::StrCat(counts[0], " ", counts[1], " ", counts[2]));
    expect_reduced(backends, counts, at::kInt, ReduceOp::kSum);
  }
}

TEST_P(Parts, AreExchangedFromWhereTheyAre) {
  const Backends backends = make_backends(3, GetParam());
  for (const std::int64_t unit : {0, 1, 1000}) {
    testing::run_ranks(3, [&](int rank) {
      Tensors inputs;
      Tensors outputs;
      for (int other = 0; other < 3; ++other) {
        inputs.push_back(part(rank, other, unit * (1 + rank + 2 * other), at::kByte));
        outputs.push_back(at::zeros({unit * (1 + other + 2 * rank)}, at::kByte));
      }
      Backend& backend = *backends[static_cast<std::size_t>(rank)];
      backend.announce(Function::kAllToAll, 2);
      backend.c10d().alltoall(outputs, inputs)->wait();
      for (int other = 0; other < 3; ++other) {
        const at::Tensor& got = outputs[static_cast<std::size_t>(other)];
        EXPECT_TRUE(got.equal(part(other, rank, got.numel(), at::kByte)))
            << "from " << other << " to " << rank;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Pieces, Parts, ::testing::Values(kOneElement, 24, kOneRound));

}  // namespace
}  // namespace sinew::internal
