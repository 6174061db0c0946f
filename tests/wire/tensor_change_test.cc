// SINEW_CHECK_TENSORS: a tensor that changes while a message refers to its memory.

#include <cstdlib>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "sinew/tests/wire/tensor_test_support.h"

namespace sinew::testing {
namespace {

// Read once, when the first large tensor is encoded.
const int setting = ::setenv("SINEW_CHECK_TENSORS", "1", 1);

std::string said_while_sending(const at::Tensor& tensor, void (*change)(const at::Tensor&)) {
  ::testing::internal::CaptureStderr();
  {
    const Encoded message = encode(tensor);
    change(tensor);
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(TensorChangeTest, IsTold) {
  ASSERT_EQ(setting, 0);
  const at::Tensor tensor = counting({100, 50});
  EXPECT_THAT(said_while_sending(tensor, [](const at::Tensor& it) { it.add_(1); }),
              ::testing::HasSubstr("Float [100,50], was changed in place while it was being sent"));
  EXPECT_EQ(said_while_sending(tensor, [](const at::Tensor&) {}), "");
}

TEST(TensorChangeTest, AlsoThroughAView) {
  const at::Tensor tensor = counting({100, 50});
  EXPECT_NE(said_while_sending(tensor, [](const at::Tensor& it) { it.select(0, 3).zero_(); }), "");
}

TEST(TensorChangeTest, SmallOnesAreCopiedAndMayChange) {
  EXPECT_EQ(said_while_sending(counting({10}), [](const at::Tensor& it) { it.add_(1); }), "");
}

}  // namespace
}  // namespace sinew::testing
