#include <chrono>
#include <functional>
#include <stdexcept>

#include "ATen/ops/allclose.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros_like.h"
#include "concepts.h"
#include "ring_all_reduce.h"
#include "sinew/examples/common/files.h"

namespace basics {
namespace {

constexpr int kRounds = 10;

/// The fastest of some rounds, at this rank.
std::chrono::duration<double, std::milli> time_of(const sinew::ProcessGroup& group,
                                                  const std::function<void()>& operation) {
  using Clock = std::chrono::steady_clock;
  auto fastest = Clock::duration::max();
  for (int round = 0; round < kRounds; ++round) {
    group.barrier();
    const Clock::time_point start = Clock::now();
    operation();
    fastest = std::min(fastest, Clock::now() - start);
  }
  return fastest;
}

}  // namespace

void ring(const sinew::ProcessGroup& group, long long bytes) {
  const auto count = static_cast<std::int64_t>(bytes / static_cast<long long>(sizeof(float)));
  const at::Tensor own = at::full({count}, group.rank() + 1.0F);
  const at::Tensor expected = own.clone();
  group.all_reduce(expected);

  const at::Tensor whole = at::zeros_like(own);
  ring_all_reduce_whole(own, whole, group);
  const at::Tensor chunked = own.clone();
  ring_all_reduce(chunked, group);
  if (!at::allclose(whole, expected) || !at::allclose(chunked, expected)) {
    throw std::runtime_error("the ring's sum is not that of all_reduce");
  }
  print_line("Rank  " + std::to_string(group.rank()) + "  has data  " +
             text_of(chunked.narrow(0, 0, 1)));

  const auto all_reduce_ms = time_of(group, [&] { group.all_reduce(expected); });
  const auto whole_ms = time_of(group, [&] { ring_all_reduce_whole(own, whole, group); });
  const auto chunked_ms = time_of(group, [&] { ring_all_reduce(chunked, group); });
  if (group.rank() != 0) return;
  print_line(std::to_string(bytes) + " bytes: all_reduce " +
             examples::fixed(all_reduce_ms.count(), 3) + " ms, ring of whole tensors " +
             examples::fixed(whole_ms.count(), 3) + " ms, ring of chunks " +
             examples::fixed(chunked_ms.count(), 3) + " ms");
}

}  // namespace basics
