#include "sinew/tests/groups/large_tensors.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"

namespace sinew::testing {
namespace {

// No power of two, so that pieces of other sizes that are mixed up are seen.
constexpr std::int64_t kStretch = 1'000'003;

/// One stretch after the other, without copies: how much memory is taken is measured.
template <class F>
void for_each_stretch(const at::Tensor& tensor, F f) {
  for (std::int64_t begin = 0; begin < tensor.numel(); begin += kStretch) {
    f(tensor.narrow(0, begin, std::min(kStretch, tensor.numel() - begin)),
      static_cast<float>(begin / kStretch % 251));
  }
}

at::Tensor made_by(int rank, std::int64_t count) {
  at::Tensor tensor = at::empty({count});
  for_each_stretch(tensor, [&](const at::Tensor& stretch, float number) {
    stretch.fill_(number + static_cast<float>(1000 * rank));
  });
  return tensor;
}

/// `factor` times what ranks make, and what their own numbers add to it.
void check(const at::Tensor& tensor, float factor, float added) {
  for_each_stretch(tensor, [&](const at::Tensor& stretch, float number) {
    if (stretch.eq(factor * number + added).all().item<bool>()) return;
    throw std::runtime_error(absl::StrCat("a stretch has ", stretch[0].item<float>(),
                                          " in place of ", factor * number + added));
  });
}

std::int64_t peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib / 1024;
  }
  throw std::runtime_error("the kernel does not say how much memory was taken");
}

}  // namespace

std::string run_large(const ProcessGroup& group, const std::string& function, int mib) {
  const int rank = group.rank();
  const int other = 1 - rank;
  const std::int64_t count = std::int64_t{mib} << 18;
  const at::Tensor mine = made_by(rank, count);
  at::Tensor got;
  // A part of the rank's own.
  const at::Tensor few = made_by(rank, 3);
  float factor = 1;
  auto added = static_cast<float>(1000 * other);
  // As large as `mine`, and that.
  int tensors = 2;
  if (function == "send") {
    got = at::empty({count});
    const Future<void> sent = group.isend(mine, other);
    group.recv(got, other);
    sent.wait();
  } else if (function == "broadcast") {
    got = mine;
    group.broadcast(got, 0);
    added = 0;
  } else if (function == "all_reduce" || function == "reduce") {
    got = mine;
    function == "reduce" ? group.reduce(got, 0) : group.all_reduce(got);
    // Elsewhere it is left as it was.
    if (function == "all_reduce" || rank == 0) factor = 2;
    added = 1000;
  } else if (function == "scatter") {
    got = at::empty({count});
    group.scatter(got, rank == 1 ? std::vector<at::Tensor>{mine, mine} : std::vector<at::Tensor>{},
                  1);
    added = 1000;
  } else if (function == "all_to_all") {
    got = at::empty({count});
    const std::vector<at::Tensor> sent =
        rank == 0 ? std::vector<at::Tensor>{few, mine} : std::vector<at::Tensor>{mine, few};
    const at::Tensor kept = at::empty({3});
    const std::vector<at::Tensor> received =
        rank == 0 ? std::vector<at::Tensor>{kept, got} : std::vector<at::Tensor>{got, kept};
    group.all_to_all(received, sent);
  } else if (function == "all_gather" || function == "gather") {
    std::vector<at::Tensor> gathered;
    if (function == "all_gather" || rank == 0) gathered = {at::empty({count}), at::empty({count})};
    function == "gather" ? group.gather(gathered, mine, 0) : group.all_gather(gathered, mine);
    got = gathered.empty() ? mine : gathered[static_cast<std::size_t>(other)];
    if (gathered.empty()) added = 1000;
    tensors += static_cast<int>(gathered.size()) - 1;
  } else if (function == "reduce_scatter") {
    got = at::empty({count});
    group.reduce_scatter(got, {mine, mine});
    factor = 2;
    added = 1000;
  } else {
    throw std::invalid_argument("no such function: " + function);
  }
  const std::int64_t peak = peak_mib();
  check(got, factor, added);
  if (got.is_same(mine)) tensors = 1;
  return absl::StrCat("data=", tensors * mib, " peak=", peak);
}

}  // namespace sinew::testing
