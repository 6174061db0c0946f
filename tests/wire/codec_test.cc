#include "sinew/rpc/wire/codec.h"

#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <ratio>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/tests/wire/wire_test_support.h"
#include "wire_fixture.pb.h"

namespace app {

struct Point {
  double x = 0;
  double y = 0;
  std::string label;
  friend bool operator==(const Point& a, const Point& b) {
    return a.x == b.x && a.y == b.y && a.label == b.label;
  }
};

struct Tree {
  int value = 0;
  std::vector<Tree> children;
  friend bool operator==(const Tree& a, const Tree& b) {
    return a.value == b.value && a.children == b.children;
  }
};

struct Nothing {};

class Fraction {
 public:
  Fraction(std::int64_t numerator, std::int64_t denominator)
      : numerator_(numerator), denominator_(denominator) {}
  std::int64_t numerator() const { return numerator_; }
  std::int64_t denominator() const { return denominator_; }

 private:
  std::int64_t numerator_;
  std::int64_t denominator_;
};

struct Unknown {};
struct TwoValues {};

/// Cannot be made.
struct Fragile {
  Fragile() = default;
  explicit Fragile(int) { throw std::runtime_error("broken"); }
  std::string text;
};

/// A list of one type within itself.
struct Chain {
  std::variant<std::vector<Chain>, int> next;
};
enum class Colour : std::int8_t { kRed = 1, kBlue = -2 };
enum Plain { kPlainZero, kPlainBig = 1 << 20 };
// Aggregates the fields of which are no scalars; and what SINEW_STRUCT does not count.
struct Nested {
  Point point;
  std::array<double, 2> sizes = {};
  Colour colour = Colour::kRed;
  std::optional<int> maybe;
};
struct Base {};
struct Derived : Base {
  std::string label;
};
struct Constructed {
  Constructed() {}
  int number = 0;
  int other = 0;
};
struct Cached {
  int key = 0;
  int cache = 0;
};
enum class Wide : std::uint64_t { kTop = std::numeric_limits<std::uint64_t>::max() };

}  // namespace app

SINEW_STRUCT(app::Point, x, y, label);
SINEW_STRUCT(app::Tree, value, children);
SINEW_STRUCT(app::Nothing);
SINEW_STRUCT(app::Nested, point, sizes, colour, maybe);
SINEW_STRUCT(app::Derived, label);
SINEW_STRUCT(app::Constructed, number);
// One of two fields.
template <>
struct sinew::Codec<app::Cached> : sinew::StructCodec<app::Cached, &app::Cached::key> {};
template <>
struct sinew::Codec<app::Fragile> : sinew::StructCodec<app::Fragile> {};
template <>
struct sinew::Codec<app::Chain> : sinew::StructCodec<app::Chain, &app::Chain::next> {};

// The example of codec.h.
template <>
struct sinew::Codec<app::Fraction> {
  static void encode(ValueWriter& writer, const app::Fraction& value) {
    ListWriter list = writer.list(2);
    list.next().integer(value.numerator());
    list.next().integer(value.denominator());
  }
  static app::Fraction decode(const ValueReader& reader) {
    const ListReader list = reader.list(2);
    const std::int64_t denominator = list.item(1).integer();
    if (denominator == 0) reader.fail("a fraction's denominator must not be 0");
    return app::Fraction(list.item(0).integer(), denominator);
  }
  static std::string signature() { return "tuple<integer,integer>"; }
};

template <>
struct sinew::Codec<app::TwoValues> {
  static void encode(ValueWriter& writer, const app::TwoValues&) {
    writer.integer(1);
    writer.integer(2);
  }
};

namespace sinew::testing {
namespace {

using ::testing::HasSubstr;

// --- which types travel

static_assert(is_wire_type_v<bool> && is_wire_type_v<double> && is_wire_type_v<std::string>);
static_assert(are_wire_types_v<signed char, unsigned char, short, unsigned short, int, unsigned,
                               long, unsigned long, long long, unsigned long long>);
static_assert(!is_wire_type_v<char> && !is_wire_type_v<wchar_t> && !is_wire_type_v<char16_t> &&
              !is_wire_type_v<char32_t>);
static_assert(!is_wire_type_v<long double> && !is_wire_type_v<std::byte>);
static_assert(!is_wire_type_v<std::vector<char>>);
static_assert(!is_wire_type_v<std::string_view> && !is_wire_type_v<const char*>);
static_assert(!is_wire_type_v<int*> && !is_wire_type_v<std::unique_ptr<int>>);
static_assert(!is_wire_type_v<app::Unknown> && !is_wire_type_v<std::list<int>>);
static_assert(!is_wire_type_v<std::vector<app::Unknown>>);
static_assert(!is_wire_type_v<std::map<std::string, std::vector<app::Unknown>>>);
static_assert(!is_wire_type_v<std::map<app::Unknown, int>>);
static_assert(!is_wire_type_v<std::tuple<int, std::optional<app::Unknown>>>);
static_assert(!is_wire_type_v<std::pair<int, app::Unknown*>>);
static_assert(!is_wire_type_v<std::array<app::Unknown, 3>>);
static_assert(!is_wire_type_v<std::set<app::Unknown>>);
static_assert(!is_wire_type_v<std::optional<std::optional<int>>>);
static_assert(!is_wire_type_v<std::optional<std::monostate>>);
static_assert(is_wire_type_v<app::Point> && is_wire_type_v<std::vector<app::Point>>);
static_assert(is_wire_type_v<app::Tree> && is_wire_type_v<at::Tensor> &&
              is_wire_type_v<WorkerInfo>);
static_assert(is_wire_type_v<sinew::testing::Pose> && is_wire_type_v<std::optional<Pose>>);
static_assert(!is_wire_type_v<std::variant<int, app::Unknown>>);
static_assert(!is_wire_type_v<std::chrono::duration<long double>>);
static_assert(is_wire_type_v<std::optional<std::variant<std::monostate, int>>>);
static_assert(is_wire_type_v<at::Scalar> && is_wire_type_v<std::vector<at::Scalar>>);
static_assert(is_wire_type_v<void> && is_wire_type_v<std::monostate>);

// --- every type comes back as it went

template <class T>
struct Samples;

template <class T>
struct IntegerSamples {
  static std::vector<T> values() {
    using Limits = std::numeric_limits<T>;
    return {0, 1, static_cast<T>(-1), Limits::min(), Limits::max(), 42};
  }
  static constexpr const char* kSignature = "integer";
};
template <>
struct Samples<std::int8_t> : IntegerSamples<std::int8_t> {};
template <>
struct Samples<std::uint8_t> : IntegerSamples<std::uint8_t> {};
template <>
struct Samples<std::int16_t> : IntegerSamples<std::int16_t> {};
template <>
struct Samples<std::uint16_t> : IntegerSamples<std::uint16_t> {};
template <>
struct Samples<std::int32_t> : IntegerSamples<std::int32_t> {};
template <>
struct Samples<std::uint32_t> : IntegerSamples<std::uint32_t> {};
template <>
struct Samples<long> : IntegerSamples<long> {};
template <>
struct Samples<unsigned long> : IntegerSamples<unsigned long> {};
template <>
struct Samples<long long> : IntegerSamples<long long> {};
template <>
struct Samples<unsigned long long> : IntegerSamples<unsigned long long> {};

#define SINEW_SAMPLES(Type, signature_text, ...)              \
  template <>                                                 \
  struct Samples<Type> {                                      \
    static std::vector<Type> values() { return __VA_ARGS__; } \
    static constexpr const char* kSignature = signature_text; \
  }

using Strings = std::vector<std::string>;
using Bools = std::vector<bool>;
using Doubles = std::vector<double>;
using Floats = std::vector<float>;
using Ints = std::vector<int>;
using Shorts = std::vector<std::int16_t>;
using Naturals = std::vector<std::uint64_t>;
using ByteVector = std::vector<std::uint8_t>;
using StdBytes = std::vector<std::byte>;
using Nested = std::vector<std::vector<std::vector<int>>>;
using IntArray = std::array<int, 3>;
using EmptyArray = std::array<double, 0>;
using ByteArray = std::array<std::uint8_t, 4>;
using Pair = std::pair<std::string, std::optional<double>>;
using Tuple = std::tuple<int, std::string, std::vector<float>>;
using OptionalInts = std::optional<std::vector<int>>;
using Map = std::map<std::string, std::vector<int>>;
using HashMap = std::unordered_map<int, std::string>;
using MapOfPairs = std::map<std::pair<int, int>, bool>;
using Set = std::set<std::string>;
using HashSet = std::unordered_set<std::uint64_t>;
using Points = std::vector<app::Point>;
using EmptyTuple = std::tuple<>;
using Seconds = std::chrono::duration<double>;
using ShortMilliseconds = std::chrono::duration<std::int16_t, std::milli>;
using Frames = std::chrono::duration<std::uint32_t, std::ratio<2, 60>>;
using Nanoseconds = std::chrono::nanoseconds;
using Years = std::chrono::duration<std::int64_t, std::ratio<31556952>>;
using Variant = std::variant<int, std::string, std::vector<double>>;
using TwoInts = std::variant<std::monostate, int, int>;
using Variants = std::vector<Variant>;

constexpr float kMaxFloat = std::numeric_limits<float>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kMaxNatural = std::numeric_limits<std::uint64_t>::max();

SINEW_SAMPLES(bool, "boolean", {true, false});
SINEW_SAMPLES(float, "real", {0.f, -0.f, 1.5f, kMaxFloat, -kMaxFloat, float(kInfinity)});
SINEW_SAMPLES(double, "real", {0.0, 0.1, -kInfinity, std::numeric_limits<double>::max(), 5e-324});
SINEW_SAMPLES(std::string, "text",
              {std::string(), "text", "gr\xC3\xBC\xC3\x9F", std::string("a\0b", 3), "\xFF\xFE"});
SINEW_SAMPLES(Bytes, "binary", {Bytes(), Bytes("text"), Bytes("\xFF\x01")});
SINEW_SAMPLES(std::monostate, "null", {std::monostate()});
SINEW_SAMPLES(app::Colour, "integer", {app::Colour::kRed, app::Colour::kBlue});
SINEW_SAMPLES(app::Plain, "integer", {app::kPlainZero, app::kPlainBig});
SINEW_SAMPLES(app::Wide, "integer", {app::Wide::kTop, app::Wide{}});
SINEW_SAMPLES(Strings, "list<text>", {{}, {"", "b"}, {"\xFF"}});
SINEW_SAMPLES(Bools, "list<boolean>", {{}, {true, false, true}});
SINEW_SAMPLES(Doubles, "list<real>", {{}, {1.5, -kInfinity}, Doubles(1000, 0.25)});
SINEW_SAMPLES(Floats, "list<real>", {{}, {1.5f, kMaxFloat}});
SINEW_SAMPLES(Ints, "list<integer>", {{}, {1, -1, std::numeric_limits<int>::min()}});
SINEW_SAMPLES(Shorts, "list<integer>", {{}, {-32768, 32767}});
SINEW_SAMPLES(Naturals, "list<integer>", {{}, {1, 2}, {0, kMaxNatural}});
SINEW_SAMPLES(ByteVector, "binary", {{}, {0, 255, 128}});
SINEW_SAMPLES(StdBytes, "binary", {{}, {std::byte{0}, std::byte{255}}});
SINEW_SAMPLES(Nested, "list<list<list<integer>>>", {{}, {{}, {{}, {1, 2}}}});
SINEW_SAMPLES(IntArray, "list<integer>", {{1, 2, 3}});
SINEW_SAMPLES(EmptyArray, "list<real>", {EmptyArray{}});
SINEW_SAMPLES(ByteArray, "binary", {{0, 1, 254, 255}});
SINEW_SAMPLES(Pair, "tuple<text,optional<real>>", {{"a", 1.0}, {"", std::nullopt}});
SINEW_SAMPLES(Tuple, "tuple<integer,text,list<real>>", {{1, "a", {0.5f}}});
SINEW_SAMPLES(EmptyTuple, "tuple<>", {EmptyTuple()});
SINEW_SAMPLES(Seconds, "duration<real,1/1>", {Seconds(0), Seconds(-1.5), Seconds(kInfinity)});
SINEW_SAMPLES(ShortMilliseconds, "duration<integer,1/1000>",
              {ShortMilliseconds::min(), ShortMilliseconds(7), ShortMilliseconds::max()});
SINEW_SAMPLES(Frames, "duration<integer,1/30>", {Frames(0), Frames::max()});
SINEW_SAMPLES(Nanoseconds, "duration<integer,1/1000000000>",
              {Nanoseconds::min(), Nanoseconds(-1), Nanoseconds::max()});
SINEW_SAMPLES(Years, "duration<integer,31556952/1>", {Years::min(), Years::max()});
SINEW_SAMPLES(Variant, "variant<integer,text,list<real>>",
              {Variant(-4), Variant(std::string("\xFF")), Variant(Doubles{1, 2})});
SINEW_SAMPLES(TwoInts, "variant<null,integer,integer>",
              {TwoInts(), TwoInts(std::in_place_index<1>, 3), TwoInts(std::in_place_index<2>, 3)});
SINEW_SAMPLES(Variants, "list<variant<integer,text,list<real>>>", {{}, {Variant(1), Variant("a")}});
SINEW_SAMPLES(OptionalInts, "optional<list<integer>>", {std::nullopt, Ints{}, Ints{3}});
SINEW_SAMPLES(Map, "map<text,list<integer>>", {{}, {{"a", {1}}, {"b", {}}}});
SINEW_SAMPLES(HashMap, "map<integer,text>", {{}, {{1, "a"}, {-1, "b"}}});
SINEW_SAMPLES(MapOfPairs, "map<tuple<integer,integer>,boolean>", {{{{1, 2}, true}}});
SINEW_SAMPLES(Set, "list<text>", {{}, {"a", "b"}});
SINEW_SAMPLES(HashSet, "list<integer>", {{}, {1, kMaxNatural}});
SINEW_SAMPLES(WorkerInfo, "tuple<text,integer,integer>",
              {WorkerInfo{"trainer", 2, Incarnation{kMaxNatural}}, WorkerInfo{}});
SINEW_SAMPLES(app::Point, "tuple<real,real,text>", {app::Point{1, 2, "p"}, app::Point{}});
SINEW_SAMPLES(Points, "list<tuple<real,real,text>>", {{}, {{1, 2, "p"}, {}}});
SINEW_SAMPLES(app::Tree, "tuple<integer,list<recursive>>",
              {app::Tree{1, {{2, {}}, {3, {{4, {}}}}}}});

template <class T>
class RoundTrip : public ::testing::Test {};

using AllTypes = ::testing::Types<
    bool, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, long,
    unsigned long, long long, unsigned long long, float, double, std::string, Bytes, std::monostate,
    app::Colour, app::Plain, app::Wide, Strings, Bools, Doubles, Floats, Ints, Shorts, Naturals,
    ByteVector, StdBytes, Nested, IntArray, EmptyArray, ByteArray, Pair, Tuple, EmptyTuple,
    OptionalInts, Map, HashMap, MapOfPairs, Set, HashSet, WorkerInfo, app::Point, Points, app::Tree,
    Seconds, ShortMilliseconds, Frames, Nanoseconds, Years, Variant, TwoInts, Variants>;
TYPED_TEST_SUITE(RoundTrip, AllTypes);

TYPED_TEST(RoundTrip, KeepsTheValue) {
  const auto values = Samples<TypeParam>::values();
  for (auto&& value : values) {
    EXPECT_TRUE(round_trip<TypeParam>(value) == value);
  }
}

TYPED_TEST(RoundTrip, HasASignature) {
  EXPECT_EQ(Codec<TypeParam>::signature(), Samples<TypeParam>::kSignature);
  // Twice: making one leaves nothing behind.
  EXPECT_EQ(Codec<TypeParam>::signature(), Samples<TypeParam>::kSignature);
}

TEST(CodecTest, NotANumberStaysOne) {
  EXPECT_TRUE(std::isnan(round_trip(std::nan(""))));
  EXPECT_TRUE(std::isnan(round_trip(std::nanf(""))));
  EXPECT_TRUE(std::signbit(round_trip(-0.0)));
}

TEST(CodecTest, VoidIsNull) {
  Encoded encoded;
  internal::EncodeContext context;
  ValueWriter writer(encoded.value, context);
  Codec<void>::encode(writer);
  EXPECT_EQ(encoded.value.kind_case(), proto::Value::KIND_NOT_SET);
  internal::DecodeContext decode_context({});
  Codec<void>::decode(ValueReader(encoded.value, decode_context, {}));
  EXPECT_EQ(Codec<void>::signature(), "null");
  EXPECT_EQ(Codec<at::Tensor>::signature(), "tensor");
}

TEST(CodecTest, StructWithoutFields) {
  EXPECT_EQ(encode(app::Nothing()).value.list().items_size(), 0);
  decode<app::Nothing>(encode(app::Nothing()));
  EXPECT_EQ(Codec<app::Nothing>::signature(), "tuple<>");
}

// --- the form on the wire is part of the contract with other languages

TEST(StructCodecTest, ListedFieldsTravelInTheirOrder) {
  app::Nested nested;
  nested.point = {1, 2, "x"};
  nested.sizes = {3, 4};
  nested.colour = app::Colour::kBlue;
  nested.maybe = 5;
  const app::Nested back = decode<app::Nested>(encode(nested));
  EXPECT_EQ(back.point, nested.point);
  EXPECT_EQ(back.sizes, nested.sizes);
  EXPECT_EQ(back.colour, nested.colour);
  EXPECT_EQ(back.maybe, nested.maybe);
  EXPECT_EQ(Codec<app::Nested>::signature(),
            "tuple<tuple<real,real,text>,list<real>,integer,optional<integer>>");
  EXPECT_EQ(Codec<app::Derived>::signature(), "tuple<text>");
}

TEST(StructCodecTest, FieldsThatAreNotListedHaveTheirDefaults) {
  app::Constructed constructed;
  constructed.number = 1;
  constructed.other = 2;
  EXPECT_EQ(decode<app::Constructed>(encode(constructed)).number, 1);
  EXPECT_EQ(decode<app::Constructed>(encode(constructed)).other, 0);
  EXPECT_EQ(decode<app::Cached>(encode(app::Cached{1, 2})).key, 1);
  EXPECT_EQ(decode<app::Cached>(encode(app::Cached{1, 2})).cache, 0);
}

TEST(WireFormTest, StringsAreTextOrBinary) {
  EXPECT_EQ(encode(std::string("a")).value.kind_case(), proto::Value::kText);
  EXPECT_EQ(encode(std::string("\xC0\x80")).value.kind_case(), proto::Value::kBinary);
  EXPECT_EQ(encode(Bytes("a")).value.kind_case(), proto::Value::kBinary);
}

TEST(WireFormTest, NumbersArePacked) {
  EXPECT_EQ(encode(Floats{1}).value.kind_case(), proto::Value::kReals);
  EXPECT_EQ(encode(IntArray{}).value.kind_case(), proto::Value::kIntegers);
  EXPECT_EQ(encode(Naturals{1}).value.kind_case(), proto::Value::kIntegers);
  EXPECT_EQ(encode(Naturals{kMaxNatural}).value.kind_case(), proto::Value::kList);
  EXPECT_EQ(encode(Bools{true}).value.kind_case(), proto::Value::kList);
  EXPECT_EQ(encode(ByteVector{1}).value.kind_case(), proto::Value::kBinary);
}

TEST(WireFormTest, NaturalsAreIntegersWhereTheyFit) {
  EXPECT_EQ(encode(std::uint64_t{1} << 62).value.kind_case(), proto::Value::kInteger);
  EXPECT_EQ(encode(std::uint64_t{1} << 63).value.kind_case(), proto::Value::kNatural);
}

TEST(WireFormTest, ReadersTakeEveryFormOfAList) {
  Encoded reals;
  for (const double item : {1.0, 2.5}) reals.value.mutable_list()->add_items()->set_real(item);
  EXPECT_EQ(decode<Doubles>(reals), (Doubles{1.0, 2.5}));
  EXPECT_EQ(decode<Floats>(reals), (Floats{1.0f, 2.5f}));

  Encoded integers;
  for (const int item : {1, -2}) integers.value.mutable_list()->add_items()->set_integer(item);
  EXPECT_EQ(decode<Ints>(integers), (Ints{1, -2}));
  EXPECT_EQ(decode<Doubles>(integers), (Doubles{1, -2}));

  EXPECT_EQ(decode<Doubles>(encode(Ints{1, -2})), (Doubles{1, -2}));
  EXPECT_EQ((decode<std::set<int>>(encode(Ints{3, 4}))), (std::set<int>{3, 4}));
  EXPECT_EQ((decode<std::tuple<int, double>>(encode(Ints{3, 4}))), std::make_tuple(3, 4.0));
  EXPECT_EQ((decode<std::pair<double, double>>(encode(Doubles{3, 4}))), std::make_pair(3.0, 4.0));
}

TEST(WireFormTest, RealsTakeIntegersThatTheyHoldExactly) {
  EXPECT_EQ(decode<double>(encode(std::int64_t{1} << 53)), 9007199254740992.0);
  EXPECT_EQ(decode_error<double>(encode((std::int64_t{1} << 53) + 1)),
            "argument 2: 9007199254740993 is outside of the range -9007199254740992 to "
            "9007199254740992");
}

TEST(WireFormTest, IntegersTakeSmallNaturals) {
  Encoded encoded;
  encoded.value.set_natural(200);
  EXPECT_EQ(decode<int>(encoded), 200);
  EXPECT_EQ(decode<std::uint8_t>(encoded), 200);
  EXPECT_EQ(decode_error<std::int8_t>(encoded),
            "argument 2: 200 is outside of the range -128 to 127");
}

// --- durations and variants

TEST(DurationCodecTest, ChecksTheRange) {
  EXPECT_EQ(decode_error<ShortMilliseconds>(encode(32768)),
            "argument 2: 32768 is outside of the range -32768 to 32767");
  EXPECT_EQ(decode_error<Frames>(encode(-1)),
            "argument 2: -1 is outside of the range 0 to 4294967295");
  EXPECT_EQ(decode_error<Nanoseconds>(encode(1.5)), "argument 2: expected an integer, got a real");
  EXPECT_EQ(decode<Seconds>(encode(2)), Seconds(2));
}

TEST(VariantCodecTest, ChecksTheIndex) {
  EXPECT_EQ(decode_error<Variant>(encode(std::make_tuple(3, 1))),
            "argument 2, item 1: 3 is outside of the range 0 to 2");
  EXPECT_THAT(decode_error<Variant>(encode(std::make_tuple(-1, 1))),
              HasSubstr("argument 2, item 1: -1 is outside of the range 0 to 2"));
  EXPECT_THAT(decode_error<Variant>(encode(std::make_tuple(kMaxNatural, 1))),
              HasSubstr("argument 2, item 1: 18446744073709551615 is outside"));
  EXPECT_EQ(decode_error<Variant>(encode(std::make_tuple(std::string("0"), 1))),
            "argument 2, item 1: expected an integer, got a text");
  EXPECT_EQ(decode_error<Variant>(encode(std::make_tuple(1, 1))),
            "argument 2, item 2: expected a text, got an integer");
  EXPECT_EQ(decode_error<Variant>(encode(std::make_tuple(1, std::string("a"), 1))),
            "argument 2: expected a list of 2 items, got one of 3");
  EXPECT_EQ(decode_error<Variant>(encode(5)), "argument 2: expected a list, got an integer");
}

TEST(VariantCodecTest, TakesThePackedForms) {
  EXPECT_EQ(decode<Variant>(encode(Ints{0, 7})), Variant(7));
}

TEST(VariantCodecTest, NestingIsLimited) {
  proto::Value value;
  proto::Value* inner = &value;
  for (int i = 0; i < 30; ++i) {
    proto::Value* variant = inner->mutable_list()->add_items();
    variant->mutable_list()->add_items()->set_integer(0);
    inner = variant->mutable_list()->add_items()->mutable_list()->add_items();
  }
  Encoded encoded;
  encoded.value = value;
  EXPECT_EQ(error_of([&] { decode<app::Chain>(encoded); }).code(), ErrorCode::kResourceExhausted);
}

TEST(VariantCodecTest, RefusesOneWithoutAValue) {
  std::variant<int, app::Fragile> variant = 1;
  EXPECT_THROW(variant.emplace<app::Fragile>(1), std::runtime_error);
  ASSERT_TRUE(variant.valueless_by_exception());
  const RpcError error = error_of([&] { encode(variant); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("std::variant"));
}

// --- messages

TEST(MessageCodecTest, RoundTrip) {
  Pose pose;
  pose.set_x(1.5);
  pose.set_frame("map");
  const Encoded encoded = encode(pose);
  EXPECT_EQ(encoded.value.message().type_url(), "type.googleapis.com/sinew.testing.Pose");
  const Pose back = round_trip(pose);
  EXPECT_EQ(back.x(), 1.5);
  EXPECT_EQ(back.frame(), "map");
  EXPECT_EQ(Codec<Pose>::signature(), "message<sinew.testing.Pose>");
}

TEST(MessageCodecTest, RefusesAnotherType) {
  EXPECT_EQ(decode_error<Other>(encode(Pose())),
            "argument 2: expected a message sinew.testing.Other, got one with type URL "
            "\"type.googleapis.com/sinew.testing.Pose\"");
  for (const char* url : {"", "sinew.testing.Pose", "x/other.Pose", "a/sinew.testing.Pose/"}) {
    Encoded encoded = encode(Pose());
    encoded.value.mutable_message()->set_type_url(url);
    EXPECT_THAT(decode_error<Pose>(encoded), HasSubstr("got one with type URL")) << url;
  }
}

TEST(MessageCodecTest, RefusesBytesThatDoNotParse) {
  Encoded encoded = encode(Pose());
  encoded.value.mutable_message()->set_value("\x12\x7F");
  EXPECT_EQ(decode_error<Pose>(encoded),
            "argument 2: the bytes of a message sinew.testing.Pose do not parse");
}

// --- codecs written by users

TEST(UserCodecTest, WrittenByHand) {
  const app::Fraction back = round_trip(app::Fraction(1, 3));
  EXPECT_EQ(back.numerator(), 1);
  EXPECT_EQ(back.denominator(), 3);
  EXPECT_EQ(decode_error<std::vector<app::Fraction>>(
                encode(std::vector<std::vector<int>>{{1, 2}, {1, 0}})),
            "argument 2, item 2: a fraction's denominator must not be 0");
}

TEST(UserCodecTest, WritingTwiceIsRefused) {
  const RpcError error = error_of([] { encode(app::TwoValues()); });
  EXPECT_EQ(error.code(), ErrorCode::kInternal);
}

}  // namespace
}  // namespace sinew::testing
