#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "gtest/gtest.h"
#include "sinew/sinew.h"
#include "sinew/testing/cluster.h"
#include "sinew/testing/gate.h"

// What the workers of these tests serve.
namespace testkit {

/// A value that others keep references to.
class Cell {
 public:
  explicit Cell(std::int64_t value) : value_(value) {}
  std::int64_t get() const { return value_.load(); }

 private:
  std::atomic<std::int64_t> value_;
};

/// Adds to a number of the worker that serves it, and returns what it is then.
std::int64_t bump(std::int64_t by);
/// As bump(), but may be repeated.
std::int64_t bump_again(std::int64_t by);
/// Bumps another worker by a call, and its own one by another, and returns the sum of both.
std::int64_t bump_by_way_of(const std::string& worker, std::int64_t by);
/// What it is at a worker, without a call.
std::int64_t total_at(const sinew::Worker& worker);
/// The cell itself, by way of the worker that serves this.
sinew::RRef<Cell> pass_on(const sinew::RRef<Cell>& cell);
at::Tensor twice(const at::Tensor& tensor);
std::int64_t count_elements(const at::Tensor& tensor);
/// Waits at gate().
void wait_at_gate();
sinew::testing::Gate& gate();
/// Is not answered before finish_stalled().
sinew::Future<void> stall();
void finish_stalled();

sinew::MethodTable methods();

}  // namespace testkit

SINEW_SERVICE(testkit::Cell, (std::int64_t), get);
SINEW_METHOD(testkit::bump, testkit::bump_again, testkit::bump_by_way_of, testkit::pass_on,
             testkit::twice, testkit::count_elements, testkit::wait_at_gate, testkit::stall);
SINEW_IDEMPOTENT(testkit::bump_again);
