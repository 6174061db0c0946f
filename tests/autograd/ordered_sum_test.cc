#include "sinew/autograd/internal/ordered_sum.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "ATen/ATen.h"

namespace {

using at::Tensor;
using sinew::internal::OrderedSum;

// Whatever is added to the first is lost: what a sum of them is depends on the order.
std::vector<Tensor> addends() {
  return {at::full({2}, 1e20F), at::full({2}, 1.0F), at::full({2}, -1e20F), at::full({2}, 3.0F)};
}

TEST(OrderedSum, IsTheSameInEachOrderOfArrival) {
  std::vector<std::size_t> order(addends().size());
  std::iota(order.begin(), order.end(), 0U);
  do {
    const std::vector<Tensor> gradients = addends();
    OrderedSum sum(gradients.size());
    EXPECT_FALSE(sum.is_complete());
    for (const std::size_t number : order) sum.add(number, gradients[number]);
    ASSERT_TRUE(sum.is_complete());
    // ((1e20 + 1) - 1e20) + 3
    EXPECT_TRUE(at::equal(sum.take(), at::full({2}, 3.0F)));
    // Others may hold them.
    EXPECT_TRUE(at::equal(gradients[0], addends()[0]));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(OrderedSum, UndefinedOnesAreZeros) {
  OrderedSum sum(3);
  sum.add(2, Tensor());
  sum.add(0, Tensor());
  sum.add(1, at::ones({2}));
  ASSERT_TRUE(sum.is_complete());
  EXPECT_TRUE(at::equal(sum.take(), at::ones({2})));
  OrderedSum nothing(1);
  nothing.add(0, Tensor());
  ASSERT_TRUE(nothing.is_complete());
  EXPECT_FALSE(nothing.take().defined());
}

TEST(OrderedSum, SparseAndDenseOnesInEachOrder) {
  const auto sparse = [](float value) {
    return at::sparse_coo_tensor(at::zeros({1, 1}, at::kLong), at::full({1}, value), {2});
  };
  const std::vector<Tensor> gradients = {sparse(1), at::ones({2}), sparse(2), sparse(3)};
  std::vector<std::size_t> order(gradients.size());
  std::iota(order.begin(), order.end(), 0U);
  do {
    OrderedSum sum(gradients.size());
    for (const std::size_t number : order) sum.add(number, gradients[number]);
    ASSERT_TRUE(sum.is_complete());
    EXPECT_TRUE(at::equal(sum.take(), at::tensor({7.0F, 1.0F})));
  } while (std::next_permutation(order.begin(), order.end()));
}

}  // namespace
