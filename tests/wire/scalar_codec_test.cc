// Values of the type at::Scalar.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/rpc/wire/codec.h"
#include "sinew/tests/wire/wire_test_support.h"

namespace sinew::testing {
namespace {

using Strings = std::vector<std::string>;
using Doubles = std::vector<double>;
using Ints = std::vector<int>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kMaxNatural = std::numeric_limits<std::uint64_t>::max();

void expect_same(const at::Scalar& value, const at::Scalar& back) {
  ASSERT_EQ(back.type(), value.type());
  if (value.isComplex()) {
    EXPECT_EQ(back.toComplexDouble(), value.toComplexDouble());
  } else if (value.isFloatingPoint()) {
    EXPECT_EQ(back.toDouble(), value.toDouble());
  } else {
    EXPECT_EQ(back.toLong(), value.toLong());
  }
}

TEST(ScalarCodecTest, KeepsTheValueAndWhatItIs) {
  const std::vector<at::Scalar> scalars = {true,       std::numeric_limits<std::int64_t>::min(),
                                           7,          2.0,
                                           -kInfinity, c10::complex<double>(1.5, -kInfinity)};
  for (const at::Scalar& scalar : scalars) expect_same(scalar, round_trip(scalar));
  const auto back = round_trip(scalars);
  ASSERT_EQ(back.size(), scalars.size());
  for (std::size_t i = 0; i < scalars.size(); ++i) expect_same(scalars[i], back[i]);
  EXPECT_TRUE(std::isnan(round_trip(at::Scalar(std::nan(""))).toDouble()));
  EXPECT_EQ(Codec<at::Scalar>::signature(), "scalar");
}

TEST(ScalarCodecTest, TakesThePackedForms) {
  const auto back = decode<std::vector<at::Scalar>>(encode(Ints{3}));
  ASSERT_EQ(back.size(), 1u);
  expect_same(3, back.front());
  expect_same(0.5, decode<std::vector<at::Scalar>>(encode(Doubles{0.5})).front());
}

TEST(ScalarCodecTest, RefusesWhatIsNone) {
  EXPECT_EQ(decode_error<at::Scalar>(encode(std::string("1"))),
            "argument 2: expected a scalar, got a text");
  EXPECT_EQ(decode_error<at::Scalar>(encode(std::monostate())),
            "argument 2: expected a scalar, got null");
  EXPECT_EQ(decode_error<at::Scalar>(encode(Doubles{1, 2, 3})),
            "argument 2: expected a list of 2 items, got one of 3");
  EXPECT_EQ(decode_error<at::Scalar>(encode(Strings{"1", "2"})),
            "argument 2, item 1: expected a real, got a text");
  EXPECT_EQ(decode_error<at::Scalar>(encode(kMaxNatural)),
            "argument 2: 18446744073709551615 is outside of the range -9223372036854775808 to "
            "9223372036854775807");
}

}  // namespace
}  // namespace sinew::testing
