// SINEW_CHECK_TENSORS: what it says of calls and their results.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <tuple>

#include <ATen/ATen.h>

#include "sinew/tests/support/cluster.h"

namespace check_tensors {

// Read once, when the first large tensor is written.
const int setting = ::setenv("SINEW_CHECK_TENSORS", "1", 1);

/// A value that changes a tensor while it is written: after those that stand before it.
struct Change {
  at::Tensor tensor;
};

}  // namespace check_tensors

template <>
struct sinew::Codec<check_tensors::Change> {
  static void encode(ValueWriter& writer, const check_tensors::Change& change) {
    if (change.tensor.defined()) change.tensor.add_(1);
    writer.null();
  }
  static check_tensors::Change decode(const ValueReader&) { return {}; }
  static std::string signature() { return "null"; }
};

namespace check_tensors {

using Result = std::tuple<at::Tensor, Change>;

double sum(const at::Tensor& tensor, const Change&) { return tensor.sum().item<double>(); }
Result ones() {
  const at::Tensor tensor = at::ones({100, 50});
  return {tensor, Change{tensor}};
}

}  // namespace check_tensors

SINEW_METHOD(check_tensors::sum, check_tensors::ones);

namespace sinew {
namespace {

using ::testing::HasSubstr;

class CheckTensorsTest : public testing::ClusterTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(check_tensors::setting, 0);
    MethodTable methods;
    methods.add<&check_tensors::sum, &check_tensors::ones>();
    start(2, std::move(methods));
  }
  /// Until the workers have ended, which have let go of all messages then.
  template <class Call>
  std::string said(const Call& call) {
    ::testing::internal::CaptureStderr();
    call(worker(0));
    finish();
    return ::testing::internal::GetCapturedStderr();
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(CheckTensorsTest);

TEST_P(CheckTensorsTest, NamesTheCall) {
  const std::string text = said([](const Worker& worker) {
    const at::Tensor tensor = at::ones({100, 50});
    worker.peer(1).call<&check_tensors::sum>(tensor, check_tensors::Change{tensor});
  });
  EXPECT_THAT(text, HasSubstr("a tensor, Float [100,50], of a call of method 'check_tensors::sum' "
                              "to worker 'worker1', was changed in place"));
}

TEST_P(CheckTensorsTest, NamesTheCallOfAResult) {
  const std::string text =
      said([](const Worker& worker) { worker.peer(1).call<&check_tensors::ones>(); });
  EXPECT_THAT(text,
              HasSubstr("of the result of method 'check_tensors::ones' for worker 'worker0'"));
}

TEST_P(CheckTensorsTest, IsSilentOtherwise) {
  EXPECT_EQ(
      said([](const Worker& worker) {
        worker.peer(1).call<&check_tensors::sum>(at::ones({100, 50}), check_tensors::Change());
      }),
      "");
}

}  // namespace
}  // namespace sinew
