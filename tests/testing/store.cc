#include "sinew/tests/testing/store.h"

#include <map>
#include <mutex>
#include <utility>

#include "ATen/ops/mul.h"

namespace testkit {
namespace {

struct Shared {
  std::mutex mutex;
  std::map<std::uint64_t, std::int64_t> totals;
  std::vector<sinew::Promise<void>> stalled;
};

Shared& shared() {
  static auto& all = *new Shared();
  return all;
}

}  // namespace

std::int64_t bump(std::int64_t by) {
  const std::uint64_t self = sinew::current_worker().info().incarnation.value;
  const std::lock_guard<std::mutex> lock(shared().mutex);
  return shared().totals[self] += by;
}

std::int64_t bump_again(std::int64_t by) { return bump(by); }

std::int64_t bump_by_way_of(const std::string& worker, std::int64_t by) {
  const sinew::Worker here = sinew::current_worker();
  const std::int64_t there = here.peer(worker).call<&bump>(by);
  return there + here.self().call<&bump>(by);
}

std::int64_t total_at(const sinew::Worker& worker) {
  const std::lock_guard<std::mutex> lock(shared().mutex);
  return shared().totals[worker.info().incarnation.value];
}

sinew::RRef<Cell> pass_on(const sinew::RRef<Cell>& cell) { return cell; }

at::Tensor twice(const at::Tensor& tensor) { return tensor.mul(2); }

std::int64_t count_elements(const at::Tensor& tensor) { return tensor.numel(); }

void wait_at_gate() { gate().pass(); }

sinew::testing::Gate& gate() {
  static auto& one = *new sinew::testing::Gate();
  return one;
}

sinew::Future<void> stall() {
  const std::lock_guard<std::mutex> lock(shared().mutex);
  shared().stalled.emplace_back();
  return shared().stalled.back().future();
}

void finish_stalled() {
  std::vector<sinew::Promise<void>> stalled;
  {
    const std::lock_guard<std::mutex> lock(shared().mutex);
    stalled.swap(shared().stalled);
  }
  for (const sinew::Promise<void>& each : stalled) each.try_set_value();
}

sinew::MethodTable methods() {
  return sinew::serve<Cell>()
      .add<&bump, &bump_again, &bump_by_way_of, &pass_on, &twice, &count_elements, &wait_at_gate,
           &stall>();
}

}  // namespace testkit
