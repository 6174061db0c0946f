#include "sinew/rpc/wire/value_reader.h"

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "ATen/core/Tensor.h"
#include "google/protobuf/arena.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/tests/wire/wire_test_support.h"

namespace sinew::testing {
namespace {

struct Tree {
  std::vector<Tree> children;
};

}  // namespace
}  // namespace sinew::testing

SINEW_STRUCT(sinew::testing::Tree, children);

namespace sinew::testing {
namespace {

using Ints = std::vector<int>;

// --- texts of errors

TEST(ValueErrorTest, NamesTheKindsAndThePlace) {
  EXPECT_EQ(decode_error<int>(encode(std::string("x"))),
            "argument 2: expected an integer, got a text");
  EXPECT_EQ(decode_error<int>(encode(1.5)), "argument 2: expected an integer, got a real");
  EXPECT_EQ(decode_error<bool>(encode(1)), "argument 2: expected a boolean, got an integer");
  EXPECT_EQ(decode_error<double>(encode(true)), "argument 2: expected a real, got a boolean");
  EXPECT_EQ(decode_error<std::string>(encode(1)), "argument 2: expected a text, got an integer");
  EXPECT_EQ(decode_error<Bytes>(encode(std::string("x"))),
            "argument 2: expected a binary, got a text");
  EXPECT_EQ(decode_error<Ints>(encode(Bytes("x"))), "argument 2: expected a list, got a binary");
  EXPECT_EQ(decode_error<Ints>(encode(std::map<int, int>())),
            "argument 2: expected a list, got a map");
  EXPECT_EQ((decode_error<std::map<int, int>>(encode(Ints{1}))),
            "argument 2: expected a map, got a list");
  EXPECT_EQ(decode_error<at::Tensor>(encode(Ints{1})), "argument 2: expected a tensor, got a list");
  EXPECT_EQ(decode_error<int>(encode(at::Tensor())),
            "argument 2: expected an integer, got a tensor");
  EXPECT_EQ(decode_error<int>(Encoded()), "argument 2: expected an integer, got null");
  EXPECT_EQ(decode_error<std::monostate>(encode(1)), "argument 2: expected null, got an integer");
  Encoded reference;
  reference.value.mutable_reference();
  EXPECT_EQ(decode_error<int>(reference), "argument 2: expected an integer, got a reference");
}

TEST(ValueErrorTest, NamesThePartInTheMiddle) {
  using Mixed = std::vector<std::pair<int, std::string>>;
  EXPECT_EQ((decode_error<Mixed>(encode(std::vector<std::pair<int, int>>{{1, 2}}))),
            "argument 2, item 1, item 2: expected a text, got an integer");
  Encoded mixed = encode(std::vector<std::string>{"a", "b", "c", "d", "e"});
  for (int i = 0; i < 4; ++i) mixed.value.mutable_list()->mutable_items(i)->set_integer(i);
  EXPECT_EQ(decode_error<Ints>(mixed), "argument 2, item 5: expected an integer, got a text");
}

TEST(ValueErrorTest, NamesItemsOfPackedLists) {
  EXPECT_EQ(decode_error<std::vector<std::string>>(encode(Ints{1, 2})),
            "argument 2, item 1: expected a text, got an integer");
  EXPECT_EQ(decode_error<Ints>(encode(std::vector<double>{1, 2})),
            "argument 2, item 1: expected an integer, got a real");
  EXPECT_EQ(decode_error<std::vector<Ints>>(encode(Ints{1, 2})),
            "argument 2, item 1: expected a list, got an integer");
  EXPECT_EQ(decode_error<std::vector<at::Tensor>>(encode(Ints{1, 2})),
            "argument 2, item 1: expected a tensor, got an integer");
  EXPECT_EQ((decode_error<std::vector<std::map<int, int>>>(encode(std::vector<double>{1}))),
            "argument 2, item 1: expected a map, got a real");
  EXPECT_EQ(decode_error<std::vector<bool>>(encode(Ints{1})),
            "argument 2, item 1: expected a boolean, got an integer");
  EXPECT_EQ(decode_error<std::vector<Bytes>>(encode(Ints{1})),
            "argument 2, item 1: expected a binary, got an integer");
  EXPECT_EQ(decode_error<std::vector<std::monostate>>(encode(Ints{1})),
            "argument 2, item 1: expected null, got an integer");
}

TEST(ValueErrorTest, NamesKeysAndValues) {
  const Encoded encoded = encode(std::map<std::string, int>{{"a", 1}});
  EXPECT_EQ((decode_error<std::map<int, int>>(encoded)),
            "argument 2, key 1: expected an integer, got a text");
  EXPECT_EQ((decode_error<std::map<std::string, Ints>>(encoded)),
            "argument 2, value 1: expected a list, got an integer");
}

TEST(ValueErrorTest, NamesTheRoot) {
  Encoded encoded;
  internal::DecodeContext context({});
  const ValueReader reader(encoded.value, context, ValuePath{nullptr, "result", 0});
  EXPECT_EQ(error_of([&] { reader.integer(); }).message(), "result: expected an integer, got null");
  EXPECT_EQ(error_of([&] { reader.fail_kind("a colour"); }).message(),
            "result: expected a colour, got null");
}

TEST(ValueErrorTest, ChecksRanges) {
  EXPECT_EQ(decode_error<std::uint8_t>(encode(256)),
            "argument 2: 256 is outside of the range 0 to 255");
  EXPECT_EQ(decode_error<std::int8_t>(encode(-129)),
            "argument 2: -129 is outside of the range -128 to 127");
  EXPECT_EQ(decode_error<std::uint64_t>(encode(-1)),
            "argument 2: -1 is outside of the range 0 to 18446744073709551615");
  EXPECT_EQ(decode_error<std::int64_t>(encode(~std::uint64_t{0})),
            "argument 2: 18446744073709551615 is outside of the range -9223372036854775808 to "
            "9223372036854775807");
  EXPECT_EQ(decode_error<std::vector<std::int16_t>>(encode(Ints{1, 32768})),
            "argument 2, item 2: 32768 is outside of the range -32768 to 32767");
  EXPECT_EQ(decode_error<std::vector<std::uint32_t>>(encode(Ints{-1})),
            "argument 2, item 1: -1 is outside of the range 0 to 4294967295");
  EXPECT_EQ(decode_error<float>(encode(1e39)),
            "argument 2: 1e+39 is beyond the range of a 32-bit real");
  EXPECT_EQ(decode_error<std::vector<float>>(encode(std::vector<double>{0, -1e39})),
            "argument 2, item 2: -1e+39 is beyond the range of a 32-bit real");
}

TEST(ValueErrorTest, ChecksLengths) {
  EXPECT_EQ((decode_error<std::array<int, 3>>(encode(Ints{1, 2}))),
            "argument 2: expected a list of 3 items, got one of 2");
  EXPECT_EQ((decode_error<std::tuple<int>>(encode(Ints{}))),
            "argument 2: expected a list of 1 item, got one of 0");
  EXPECT_EQ(decode_error<WorkerInfo>(encode(Ints{1, 2, 3, 4})),
            "argument 2: expected a list of 3 items, got one of 4");
  EXPECT_EQ((decode_error<std::array<std::uint8_t, 2>>(encode(Bytes("abc")))),
            "argument 2: expected a binary of 2 bytes, got 3");
}

TEST(ValueErrorTest, RefusesRepeatedKeysAndItems) {
  Encoded map = encode(std::map<int, int>{{1, 1}, {2, 2}});
  map.value.mutable_map()->mutable_keys(1)->set_integer(1);
  EXPECT_EQ((decode_error<std::map<int, int>>(map)),
            "argument 2, key 2: it repeats an earlier one");
  EXPECT_EQ(decode_error<std::set<int>>(encode(Ints{1, 2, 1})),
            "argument 2, item 3: it repeats an earlier one");
  EXPECT_EQ(decode_error<std::unordered_set<int>>(encode(Ints{1, 1})),
            "argument 2, item 2: it repeats an earlier one");
}

TEST(ValueErrorTest, RefusesMapsWhoseKeysAndValuesDiffer) {
  Encoded map = encode(std::map<int, int>{{1, 1}, {2, 2}});
  map.value.mutable_map()->mutable_values()->RemoveLast();
  EXPECT_EQ((decode_error<std::map<int, int>>(map)), "argument 2: a map has 2 keys and 1 values");
}

TEST(ValueErrorTest, ItemsBeyondTheEnd) {
  const Encoded encoded = encode(Ints{1});
  internal::DecodeContext context({});
  const ValueReader reader(encoded.value, context, {});
  const ListReader list = reader.list();
  EXPECT_EQ(error_of([&] { list.item(1); }).message(), "value: expected at least 2 items, got 1");
}

// --- limits

TEST(DecodeLimitTest, CountsValuesOfAllParts) {
  internal::DecodeLimits limits;
  limits.max_values = 4;
  const std::vector<std::string> three{"a", "b", "c"};
  EXPECT_EQ(decode<std::vector<std::string>>(encode(three), limits), three);
  limits.max_values = 3;
  const RpcError error = error_of([&] { decode<std::vector<std::string>>(encode(three), limits); });
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(error.message(),
            "argument 2, item 3: the message has more than 3 values; pass bulk data as tensors");
}

TEST(DecodeLimitTest, PackedNumbersCountAsOne) {
  internal::DecodeLimits limits;
  limits.max_values = 1;
  EXPECT_EQ(decode<Ints>(encode(Ints(1000, 7)), limits).size(), 1000U);
  EXPECT_EQ(decode<std::vector<float>>(encode(std::vector<float>(1000)), limits).size(), 1000U);
}

TEST(DecodeLimitTest, DeepValuesEndInAnErrorNotInTheStack) {
  google::protobuf::Arena arena;
  auto& root = *google::protobuf::Arena::CreateMessage<proto::Value>(&arena);
  proto::Value* inner = &root;
  for (int i = 0; i < 100000; ++i) inner = inner->mutable_list()->add_items();
  inner->mutable_list();
  internal::DecodeContext context({});
  const ValueReader reader(root, context, {});
  // As a tree, each item is a list of one field, the list of the children.
  const RpcError error = error_of([&] { Codec<Tree>::decode(reader); });
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(error.message(), ::testing::HasSubstr("more than 40 lists or maps"));
  EXPECT_LE(context.values_seen, 42U);
}

TEST(DecodeLimitTest, DeepBytesDoNotParse) {
  std::string bytes;
  // From the inside: each level wraps the bytes so far as the only item of a list. Lengths are
  // varints.
  const auto wrap = [&bytes](char tag) {
    std::string length;
    for (std::size_t n = bytes.size(); length.empty() || n != 0; n >>= 7) {
      if (!length.empty()) length.back() = static_cast<char>(length.back() | 0x80);
      length.push_back(static_cast<char>(n & 0x7F));
    }
    bytes.insert(0, tag + length);
  };
  constexpr char kListTag = 0x3A;
  constexpr char kItemTag = 0x0A;
  for (int i = 0; i < 10000; ++i) {
    wrap(kItemTag);
    wrap(kListTag);
  }
  proto::Value value;
  EXPECT_FALSE(value.ParseFromString(bytes));
}

TEST(DecodeLimitTest, ClaimedLengthsBeyondTheBytesDoNotParse) {
  // A packed list of 10^9 bytes of reals, of which none is there.
  const std::string bytes("\x62\x85\x94\xEB\xDC\x03\x0A\x80\x94\xEB\xDC\x03", 12);
  proto::Value value;
  EXPECT_FALSE(value.ParseFromString(bytes));
}

TEST(DecodeLimitTest, LargeItemsAreNotReservedBeforeTheyAreValid) {
  // A million nulls, where a megabyte each is expected: refused at the first, without a terabyte of
  // reservation.
  Encoded encoded;
  for (int i = 0; i < 1000000; ++i) encoded.value.mutable_list()->add_items();
  EXPECT_EQ((decode_error<std::vector<std::array<double, 131072>>>(encoded)),
            "argument 2, item 1: expected a list, got null");
}

}  // namespace
}  // namespace sinew::testing
