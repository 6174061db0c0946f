#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "ATen/ops/eq.h"
#include "ATen/ops/full.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"

// Methods for tests of what lies between two workers: room, limits, time.
namespace testapp {

/// What gated() waits at, one for all workers of the process.
inline sinew::testing::Gate& gate() {
  static auto& gate = *new sinew::testing::Gate();
  return gate;
}

/// `size` bytes, each of them `value`.
inline at::Tensor filled(std::int64_t size, std::int64_t value) {
  return at::full({size}, value & 0xff, at::kByte);
}
/// Whether it is what filled(size, value) returns.
inline bool is_filled(const at::Tensor& tensor, std::int64_t size, std::int64_t value) {
  return tensor.dim() == 1 && tensor.size(0) == size && tensor.scalar_type() == at::kByte &&
         at::eq(tensor, value & 0xff).all().item<bool>();
}

/// filled(), once the gate is open. Notes that the call of this number has run.
inline at::Tensor gated(std::int64_t size, int number) {
  gate().pass();
  count(number);
  return filled(size, number);
}

/// As stall(), with an argument.
inline sinew::Future<int> hold(const std::string& bytes) {
  (void)bytes;
  return stall();
}

/// Notes that the call of this number has run.
inline int count_with(int number, const at::Tensor& tensor) {
  (void)tensor;
  return count(number);
}

inline std::int64_t count_tensors(const std::vector<at::Tensor>& tensors) {
  return static_cast<std::int64_t>(tensors.size());
}
inline std::vector<at::Tensor> make_tensors(std::int64_t count) {
  std::vector<at::Tensor> tensors;
  for (std::int64_t i = 0; i < count; ++i) tensors.push_back(at::full({1}, i, at::kLong));
  return tensors;
}

/// The time that the call has left when its method starts.
inline std::int64_t milliseconds_left() {
  const auto left =
      sinew::CallContext::current().deadline() - sinew::internal::Clock::system().now();
  return std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
}

}  // namespace testapp

SINEW_METHOD(testapp::filled, testapp::gated, testapp::hold, testapp::count_with,
             testapp::count_tensors, testapp::make_tensors, testapp::milliseconds_left);

namespace testapp {

inline void add_link_methods(sinew::MethodTable& table) {
  table.add<&filled>().add<&gated>().add<&hold>().add<&count_with>();
  table.add<&count_tensors>().add<&make_tensors>().add<&milliseconds_left>();
}

}  // namespace testapp
