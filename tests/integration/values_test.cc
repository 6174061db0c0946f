// Values of every kind as arguments and results of calls.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/wire/bytes.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/value.pb.h"

namespace values {

enum class Color : std::uint8_t { kRed = 1, kBlue = 200 };
enum Plain { kZero, kMinusOne = -1 };

struct Point {
  double x = 0, y = 0;
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

struct Batch {
  at::Tensor images;
  std::vector<std::int64_t> labels;
  sinew::RRef<std::string> source;
};

/// Its codec refuses what makes no sense.
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

template <class T>
T echo(T value) {
  return value;
}
double value_of(const Fraction& fraction) {
  return static_cast<double>(fraction.numerator()) / static_cast<double>(fraction.denominator());
}
std::uint8_t as_byte(std::uint8_t value) { return value; }
int hundred_times(int value) { return 100 * value; }
// What callers believe who were built from other sources: the signature says "integer" for all
// widths.
int as_byte_of_a_wide_caller(int value) { return value; }
std::int8_t hundred_times_of_a_narrow_caller(int value) { return static_cast<std::int8_t>(value); }
at::Tensor plus_one(const at::Tensor& tensor) { return tensor + 1; }
double sum(const std::vector<at::Tensor>& tensors) {
  double total = 0;
  for (const at::Tensor& tensor : tensors) total += tensor.sum().item<double>();
  return total;
}
std::int64_t storage_bytes(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.storage().nbytes());
}
std::int64_t elements(const at::Tensor& tensor) { return tensor.numel(); }
at::Tensor first_row_of_many(std::int64_t rows) { return at::arange(rows * 8).view({rows, 8})[0]; }

using StringRef = sinew::RRef<std::string>;
std::string read(const StringRef& ref) { return ref.to_here(); }
std::string read_all(const std::vector<StringRef>& refs) {
  std::string all;
  for (const StringRef& ref : refs) all += ref.to_here();
  return all;
}
std::string read_map(const std::map<std::string, StringRef>& refs) {
  std::string all;
  for (const auto& [name, ref] : refs) all += name + "=" + ref.to_here() + ";";
  return all;
}
std::string read_optional(const std::optional<StringRef>& ref) {
  return ref.has_value() ? ref->to_here() : "none";
}
std::string read_batch(const Batch& batch) {
  return batch.source.to_here() + std::to_string(batch.images.numel()) +
         std::to_string(batch.labels.size());
}
std::vector<StringRef> make_refs(int count) {
  std::vector<StringRef> refs;
  for (int i = 0; i < count; ++i) {
    refs.push_back(sinew::make_rref(sinew::current_worker(), "ref" + std::to_string(i)));
  }
  return refs;
}

}  // namespace values

SINEW_STRUCT(values::Point, x, y, label);
SINEW_STRUCT(values::Tree, value, children);
SINEW_STRUCT(values::Batch, images, labels, source);
template <>
struct sinew::Codec<values::Fraction> {
  static void encode(ValueWriter& writer, const values::Fraction& value) {
    ListWriter list = writer.list(2);
    list.next().integer(value.numerator());
    list.next().integer(value.denominator());
  }
  static values::Fraction decode(const ValueReader& reader) {
    const ListReader list = reader.list(2);
    const std::int64_t denominator = list.item(1).integer();
    if (denominator == 0) reader.fail("a fraction's denominator must not be 0");
    return values::Fraction(list.item(0).integer(), denominator);
  }
  static std::string signature() { return "tuple<integer,integer>"; }
};

// All types that the tests send there and back.
// clang-format off
#define ECHO_TYPES(X)                                                                              \
  X(bool)                                                                                          \
  X(std::int8_t) X(std::uint8_t) X(std::int16_t) X(std::uint16_t) X(std::int32_t) X(std::uint32_t) \
      X(std::int64_t) X(std::uint64_t) X(float) X(double) X(std::string) X(sinew::Bytes)           \
          X(std::vector<std::uint8_t>) X(std::vector<int>) X(std::vector<bool>) X(                 \
              std::vector<std::string>) X(std::vector<std::vector<double>>) X(std::array<int, 3>)  \
              X(std::pair<int, std::string>) X(std::tuple<int, double, std::string>)               \
                  X(std::tuple<>) X(std::optional<int>) X(std::map<std::string, int>)              \
                      X(std::unordered_map<int, std::string>) X(                                   \
                          std::map<int, std::vector<std::optional<std::string>>>) X(std::set<int>) \
                          X(values::Color) X(values::Plain) X(values::Point)                       \
                              X(std::vector<values::Point>) X(values::Tree) X(sinew::WorkerInfo)   \
                                  X(std::monostate) X(at::Tensor) X(std::vector<at::Tensor>)       \
                                      X(std::map<std::string, at::Tensor>)                         \
                                          X(std::pair<at::Tensor, std::vector<at::Tensor>>)        \
                                              X(std::optional<at::Tensor>) X(sinew::proto::Value)  \
                                                  X(std::vector<sinew::proto::Value>)
// clang-format on
#define NAME_ECHO(...) \
  SINEW_METHOD_AS("values::echo<" #__VA_ARGS__ ">", &values::echo<__VA_ARGS__>);
ECHO_TYPES(NAME_ECHO)
#undef NAME_ECHO

SINEW_METHOD(values::value_of, values::as_byte, values::hundred_times);
SINEW_METHOD_AS("values::as_byte", &values::as_byte_of_a_wide_caller);
SINEW_METHOD_AS("values::hundred_times", &values::hundred_times_of_a_narrow_caller);
SINEW_METHOD(values::plus_one, values::sum, values::storage_bytes, values::elements,
             values::first_row_of_many, values::read, values::read_all, values::read_map,
             values::read_optional, values::read_batch, values::make_refs);

namespace sinew {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

MethodTable values_table() {
  MethodTable methods;
#define ADD_ECHO(...) methods.add<&values::echo<__VA_ARGS__>>();
  ECHO_TYPES(ADD_ECHO)
#undef ADD_ECHO
  methods.add<&values::value_of>()
      .add<&values::as_byte>()
      .add<&values::hundred_times>()
      .add<&values::plus_one>()
      .add<&values::sum>()
      .add<&values::storage_bytes>()
      .add<&values::elements>()
      .add<&values::first_row_of_many>()
      .add<&values::read>()
      .add<&values::read_all>()
      .add<&values::read_map>()
      .add<&values::read_optional>()
      .add<&values::read_batch>()
      .add<&values::make_refs>();
  return methods;
}

bool same_tensor(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.is_sparse() != b.is_sparse()) return false;
  if (a.is_sparse()) {
    return a.sizes() == b.sizes() && a.is_coalesced() == b.is_coalesced() &&
           same_tensor(a._indices(), b._indices()) && same_tensor(a._values(), b._values());
  }
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.requires_grad() == b.requires_grad() && at::equal(a, b);
}

class ValuesTest : public testing::ClusterTest {
 protected:
  void SetUp() override { start(2, values_table()); }
  Peer callee() const { return worker(0).peer(1); }

  template <class T>
  T there_and_back(const T& value) {
    return callee().call<&values::echo<T>>(value);
  }
  template <class T>
  void expect_same(const std::vector<T>& samples) {
    for (const T& value : samples) {
      EXPECT_EQ(there_and_back(value), value);
      // Kept at the callee, then fetched.
      EXPECT_EQ(callee().remote<&values::echo<T>>(value).to_here(), value);
    }
  }
  void expect_same_tensor(const at::Tensor& tensor) {
    const at::Tensor back = there_and_back(tensor);
    EXPECT_TRUE(same_tensor(tensor, back));
    EXPECT_TRUE(same_tensor(tensor, callee().remote<&values::echo<at::Tensor>>(tensor).to_here()));
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(ValuesTest);

template <class T>
std::vector<T> limits() {
  return {std::numeric_limits<T>::min(), 0, 1, std::numeric_limits<T>::max()};
}

TEST_P(ValuesTest, Numbers) {
  expect_same<bool>({true, false});
  expect_same(limits<std::int8_t>());
  expect_same(limits<std::uint8_t>());
  expect_same(limits<std::int16_t>());
  expect_same(limits<std::uint16_t>());
  expect_same(limits<std::int32_t>());
  expect_same(limits<std::uint32_t>());
  expect_same(limits<std::int64_t>());
  expect_same(limits<std::uint64_t>());
  expect_same<float>({0.0F, -1.5F, std::numeric_limits<float>::max(),
                      std::numeric_limits<float>::denorm_min(),
                      std::numeric_limits<float>::infinity()});
  expect_same<double>({0.0, 1e-300, -std::numeric_limits<double>::infinity(), 0.1});
  EXPECT_TRUE(std::isnan(there_and_back(std::numeric_limits<double>::quiet_NaN())));
}

TEST_P(ValuesTest, Text) {
  using namespace std::string_literals;
  expect_same<std::string>({"", "text", "\xC3\xA9\n\t", "with a \0 in it"s, "\xFF\xFE not UTF-8"s,
                            std::string(1 << 20, 'x')});
  expect_same<Bytes>({Bytes(""), Bytes("\0\xFF\x01"s), Bytes(std::string(100000, '\x80'))});
  expect_same<std::vector<std::uint8_t>>({{}, {0, 255, 7}});
}

TEST_P(ValuesTest, Containers) {
  expect_same<std::vector<int>>({{}, {1, -2, 3}, std::vector<int>(10000, 7)});
  expect_same<std::vector<bool>>({{}, {true, false, true}});
  expect_same<std::vector<std::string>>({{}, {"a", "", "c"}});
  expect_same<std::vector<std::vector<double>>>({{}, {{}, {1.5}, {2, 3}}});
  expect_same<std::array<int, 3>>({{1, 2, 3}});
  expect_same<std::pair<int, std::string>>({{1, "one"}});
  expect_same<std::tuple<int, double, std::string>>({{1, 2.5, "three"}});
  expect_same<std::tuple<>>({{}});
  expect_same<std::optional<int>>({std::nullopt, 0, 5});
  expect_same<std::map<std::string, int>>({{}, {{"a", 1}, {"", 2}}});
  expect_same<std::unordered_map<int, std::string>>({{}, {{1, "a"}, {-2, "b"}}});
  expect_same<std::map<int, std::vector<std::optional<std::string>>>>(
      {{{1, {"x", std::nullopt}}, {2, {}}}});
  expect_same<std::set<int>>({{}, {3, 1, 2}});
  expect_same<std::monostate>({{}});
}

TEST_P(ValuesTest, EnumsAndStructs) {
  expect_same<values::Color>({values::Color::kRed, values::Color::kBlue});
  expect_same<values::Plain>({values::kZero, values::kMinusOne});
  expect_same<values::Point>({{}, {1, -2, "here"}});
  expect_same<std::vector<values::Point>>({{}, {{1, 2, "a"}, {3, 4, "b"}}});
  expect_same<values::Tree>({{1, {{2, {}}, {3, {{4, {}}}}}}});
  expect_same<WorkerInfo>({worker(0).info(), worker(1).info()});
  EXPECT_EQ(callee().call<&values::value_of>(values::Fraction(1, 4)), 0.25);
}

TEST_P(ValuesTest, ProtobufMessages) {
  proto::Value message;
  message.set_text("in a message");
  EXPECT_EQ(there_and_back(message).text(), "in a message");
  const std::vector<proto::Value> back = there_and_back(std::vector<proto::Value>(3, message));
  ASSERT_EQ(back.size(), 3u);
  EXPECT_EQ(back[2].text(), "in a message");
}

TEST_P(ValuesTest, WhatTheReceiverRefusesIsNamed) {
  const RpcError error =
      error_of([&] { callee().call<&values::value_of>(values::Fraction(1, 0)); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.message(), "argument 1: a fraction's denominator must not be 0");
  EXPECT_EQ(error.execution(), Execution::kDidNotRun);
}

TEST_P(ValuesTest, NumbersOutOfTheReceiversRangeAreRefused) {
  EXPECT_EQ(callee().call<&values::as_byte_of_a_wide_caller>(255), 255);
  for (const int value : {256, -1}) {
    const RpcError error =
        error_of([&] { callee().call<&values::as_byte_of_a_wide_caller>(value); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.message(),
              absl::StrCat("argument 1: ", value, " is outside of the range 0 to 255"));
    EXPECT_EQ(error.execution(), Execution::kDidNotRun);
  }
  EXPECT_EQ(callee().call<&values::hundred_times_of_a_narrow_caller>(1), 100);
  const RpcError error =
      error_of([&] { callee().call<&values::hundred_times_of_a_narrow_caller>(2); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.message(), "result: 200 is outside of the range -128 to 127");
  EXPECT_EQ(error.execution(), Execution::kMayHaveRun)
      << "the method has run, only its result is unusable";
  EXPECT_EQ(error.peer(), "worker1");
  EXPECT_EQ(error.method(), "values::hundred_times");
}

TEST_P(ValuesTest, TreesThatAreTooDeepAreRefusedByTheSender) {
  values::Tree tree;
  for (int i = 0; i < 60; ++i) tree = values::Tree{i, {tree}};
  const RpcError error = error_of([&] { there_and_back(tree); });
  EXPECT_EQ(error.execution(), Execution::kDidNotRun);
  EXPECT_THAT(error.message(), HasSubstr("40"));
  EXPECT_EQ(there_and_back(5), 5) << "the worker goes on";
}

// ---- Tensors.

TEST_P(ValuesTest, TensorsOfEveryType) {
  for (const at::ScalarType type :
       {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat,
        at::kDouble, at::kBool, at::kComplexFloat, at::kComplexDouble}) {
    SCOPED_TRACE(at::toString(type));
    at::Tensor tensor = at::arange(12).view({3, 4}).to(type);
    expect_same_tensor(tensor);
    expect_same_tensor(tensor.t());
    expect_same_tensor(at::empty({0, 5}, tensor.options()));
    expect_same_tensor(tensor[1][1]);
  }
}

TEST_P(ValuesTest, TensorsOfEveryShape) {
  expect_same_tensor(at::Tensor());
  expect_same_tensor(at::scalar_tensor(3.5));
  expect_same_tensor(at::empty({0}));
  expect_same_tensor(at::empty({2, 0, 3}));
  expect_same_tensor(at::ones({1, 1, 1, 1, 1, 1}));
  expect_same_tensor(at::rand({7}));
  expect_same_tensor(at::rand({600, 700}));
  at::Tensor wants_gradient = at::rand({3});
  wants_gradient.set_requires_grad(true);
  expect_same_tensor(wants_gradient);
}

TEST_P(ValuesTest, ViewsTakeOnlyTheirOwnBytes) {
  const at::Tensor large = at::arange(1 << 20);
  for (const at::Tensor& view : {large.narrow(0, 1000, 16), large[5], large.narrow(0, 0, 2000)}) {
    expect_same_tensor(view);
    EXPECT_EQ(callee().call<&values::storage_bytes>(view),
              static_cast<std::int64_t>(view.nbytes()));
  }
  EXPECT_EQ(callee().call<&values::first_row_of_many>(10000).storage().nbytes(), 64u);
}

TEST_P(ValuesTest, ReceivedTensorsArePassedOnAsCopies) {
  for (const std::int64_t size : {100, 10'000, 40'000, 1'000'000}) {
    const at::Tensor sent = at::rand({size});
    const at::Tensor received = there_and_back(sent);
    const at::Tensor once_more = there_and_back(received);
    ASSERT_TRUE(once_more.equal(sent));
    once_more.zero_();
    EXPECT_TRUE(received.equal(sent)) << size;
  }
}

TEST_P(ValuesTest, StridesOfDenseTensorsAreKept) {
  const at::Tensor matrix = at::rand({40, 50});
  const at::Tensor images = at::rand({2, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
  for (const at::Tensor& dense : {matrix, matrix.t(), images, images.permute({3, 1, 0, 2})}) {
    expect_same_tensor(dense);
    EXPECT_EQ(there_and_back(dense).strides(), dense.strides());
  }
  const at::Tensor gaps = matrix.slice(1, 0, 50, 3);
  const at::Tensor expanded = at::rand({1, 4}).expand({3, 4});
  for (const at::Tensor& sparse :
       {gaps, expanded, matrix.select(1, 3), matrix.slice(0, 0, 40, 2)}) {
    expect_same_tensor(sparse);
    EXPECT_TRUE(there_and_back(sparse).is_contiguous());
  }
}

TEST_P(ValuesTest, ConjugatedViewsAreResolved) {
  const at::Tensor numbers = at::rand({3, 3}).to(at::kComplexFloat) * c10::complex<float>(1, 2);
  const at::Tensor back = there_and_back(numbers.conj());
  EXPECT_FALSE(back.is_conj());
  EXPECT_TRUE(at::equal(back, numbers.conj().resolve_conj()));
}

TEST_P(ValuesTest, SparseTensors) {
  const at::Tensor indices = at::tensor({0, 1, 1, 2, 0, 2}, at::kLong).view({2, 3});
  const at::Tensor sparse = at::sparse_coo_tensor(indices, at::tensor({3.0, 4.0, 5.0}), {3, 4});
  expect_same_tensor(sparse);
  expect_same_tensor(sparse.coalesce());
  const at::Tensor twice = at::tensor({1, 1, 2, 2}, at::kLong).view({2, 2});
  expect_same_tensor(at::sparse_coo_tensor(twice, at::tensor({1.0, 2.0}), {3, 4}));
  expect_same_tensor(at::sparse_coo_tensor(indices, at::rand({3, 5}), {3, 4, 5}));
  const at::Tensor none = at::empty({2, 0}, at::kLong);
  expect_same_tensor(at::sparse_coo_tensor(none, at::empty({0}), {3, 4}));
  const auto list =
      there_and_back(std::vector<at::Tensor>{sparse, at::ones({2}), sparse.coalesce()});
  EXPECT_TRUE(same_tensor(list[0], sparse));
  EXPECT_TRUE(same_tensor(list[2], sparse.coalesce()));
}

TEST_P(ValuesTest, TensorsInContainers) {
  const at::Tensor a = at::rand({3, 3});
  const at::Tensor b = at::rand({5000});
  const auto list = there_and_back(std::vector<at::Tensor>{a, b, at::Tensor(), a});
  ASSERT_EQ(list.size(), 4u);
  EXPECT_TRUE(same_tensor(list[0], a));
  EXPECT_TRUE(same_tensor(list[1], b));
  EXPECT_FALSE(list[2].defined());
  EXPECT_TRUE(same_tensor(list[3], a));
  const auto map = there_and_back(std::map<std::string, at::Tensor>{{"a", a}, {"b", b}});
  EXPECT_TRUE(same_tensor(map.at("b"), b));
  const auto pair = there_and_back(std::pair<at::Tensor, std::vector<at::Tensor>>{a, {b, a}});
  EXPECT_TRUE(same_tensor(pair.second[0], b));
  const auto some = there_and_back(std::optional<at::Tensor>(a));
  ASSERT_TRUE(some.has_value());
  EXPECT_TRUE(same_tensor(*some, a));
  EXPECT_FALSE(there_and_back(std::optional<at::Tensor>()).has_value());
}

TEST_P(ValuesTest, LargeTensorsAndManyAtOnce) {
  const at::Tensor large = at::rand({3 << 20});  // Bulk, in several chunks.
  expect_same_tensor(large);
  std::vector<Future<at::Tensor>> results;
  for (int i = 0; i < 20; ++i) {
    results.push_back(callee().async<&values::plus_one>(at::full({500, 500}, i)));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(
        at::equal(results[static_cast<std::size_t>(i)].take(), at::full({500, 500}, i + 1)));
  }
  EXPECT_EQ(callee().call<&values::sum>(std::vector<at::Tensor>(300, at::ones({100}))), 30000.0);
}

TEST_P(ValuesTest, BorrowedMemoryIsCopiedBeforeTheCallReturns) {
  std::vector<float> memory(5000, 1.0F);
  Future<double> sum;
  {
    const at::Tensor borrowed = at::from_blob(memory.data(), {5000});
    sum = callee().async<&values::sum>(std::vector<at::Tensor>{borrowed});
  }
  std::fill(memory.begin(), memory.end(), 2.0F);
  EXPECT_EQ(sum.wait(), 5000.0);
}

TEST_P(ValuesTest, ReceiversMayChangeTheirTensors) {
  const at::Tensor mine = at::ones({5000});
  at::Tensor theirs = there_and_back(mine);
  theirs.add_(1);
  EXPECT_EQ(mine.sum().item<double>(), 5000.0);
}

// docs/values.md says so.
TEST_P(ValuesTest, WhoReadsFirstDecidesOnInferenceTensors) {
  const auto ask = [&] { return callee().async<&values::plus_one>(at::ones({5000})); };
  Future<at::Tensor> within = ask();
  Future<at::Tensor> outside = ask();
  EXPECT_FALSE(outside.wait().is_inference());
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(within.wait().is_inference());
    EXPECT_FALSE(outside.wait().is_inference());
  }
  EXPECT_TRUE(within.wait().is_inference());
  EXPECT_FALSE(within.wait().clone().is_inference());
}

TEST_P(ValuesTest, TensorsThatCannotTravelAreRefusedAtTheCallSite) {
  const at::Tensor quantized = at::quantize_per_tensor(at::rand({4}), 0.1, 0, at::kQInt8);
  RpcError error = error_of([&] { callee().async<&values::elements>(quantized); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.execution(), Execution::kDidNotRun);
  EXPECT_THAT(error.message(), HasSubstr("dequantize()"));
  error = error_of(
      [&] { callee().async<&values::elements>(at::empty({2}, at::TensorOptions(at::kMeta))); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  error = error_of([&] { callee().async<&values::elements>(at::eye(3).to_sparse_csr()); });
  EXPECT_THAT(error.message(), HasSubstr("to_dense()"));
  EXPECT_EQ(callee().call<&values::elements>(at::ones({3})), 3);
}

// ---- References.

TEST_P(ValuesTest, ReferencesInsideOfValues) {
  const auto hello = make_rref(worker(0), std::string("hello"));
  const auto there = callee().remote<&values::echo<std::string>>(std::string("there"));
  EXPECT_EQ(callee().call<&values::read>(hello), "hello");
  EXPECT_EQ(callee().call<&values::read>(there), "there") << "back at its owner";
  EXPECT_EQ(callee().call<&values::read_all>(std::vector<values::StringRef>{hello, there, hello}),
            "hellotherehello");
  EXPECT_EQ(callee().call<&values::read_map>(
                std::map<std::string, values::StringRef>{{"a", hello}, {"b", there}}),
            "a=hello;b=there;");
  EXPECT_EQ(callee().call<&values::read_optional>(std::optional<values::StringRef>(hello)),
            "hello");
  EXPECT_EQ(callee().call<&values::read_optional>(std::nullopt), "none");
  EXPECT_EQ(callee().call<&values::read_batch>(values::Batch{at::ones({6}), {1, 2}, hello}),
            "hello62");
}

TEST_P(ValuesTest, ReferencesAsResults) {
  const std::vector<values::StringRef> refs = callee().call<&values::make_refs>(5);
  ASSERT_EQ(refs.size(), 5u);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    EXPECT_EQ(refs[i].owner_name(), "worker1");
    EXPECT_EQ(refs[i].to_here(), absl::StrCat("ref", i));
  }
  const auto kept = callee().remote<&values::make_refs>(2);
  EXPECT_EQ(kept.to_here()[1].to_here(), "ref1") << "a reference to references";
}

TEST_P(ValuesTest, EmptyReferenceIsRefusedAtTheCallSite) {
  const RpcError error = error_of([&] { callee().async<&values::read>(values::StringRef()); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(error.execution(), Execution::kDidNotRun);
}

}  // namespace
}  // namespace sinew
