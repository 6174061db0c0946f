#include "sinew/rpc/wire/value_writer.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "sinew/rpc/method.h"
#include "sinew/rpc/wire/codec.h"
#include "sinew/tests/wire/wire_test_support.h"

namespace sinew::testing {
namespace {

struct Tree {
  std::vector<Tree> children;
};
bool operator==(const Tree& a, const Tree& b) { return a.children == b.children; }

}  // namespace
}  // namespace sinew::testing

SINEW_STRUCT(sinew::testing::Tree, children);

namespace sinew::testing {
namespace {

TEST(ValueWriterTest, TextMustBeUtf8) {
  Encoded encoded;
  internal::EncodeContext context;
  ValueWriter writer(encoded.value, context);
  const RpcError error = error_of([&] { writer.text("a\xFF"); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), ::testing::HasSubstr("sinew::Bytes"));
}

TEST(ValueWriterTest, RefusesDeepValues) {
  Tree deep;
  for (int i = 0; i < 200; ++i) {
    Tree outer;
    outer.children.push_back(std::move(deep));
    deep = std::move(outer);
  }
  EXPECT_EQ(error_of([&] { encode(deep); }).code(), ErrorCode::kResourceExhausted);
}

TEST(ValueWriterTest, TheDeepestValuePassesAnyParser) {
  // Twenty levels of Tree are forty lists within each other.
  Tree deep;
  for (std::size_t i = 1; i < internal::kMaxNesting / 2; ++i) {
    Tree outer;
    outer.children.push_back(std::move(deep));
    deep = std::move(outer);
  }
  EXPECT_TRUE(round_trip(deep) == deep);
}

}  // namespace
}  // namespace sinew::testing
