#include <limits>
#include <string>
#include <vector>

#include "sinew/rpc/wire/tensor_codec.h"
#include "sinew/tests/wire/tensor_test_support.h"

namespace sinew::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

void set_sizes(proto::Tensor& tensor, const std::vector<std::int64_t>& sizes) {
  tensor.clear_sizes();
  for (const std::int64_t size : sizes) tensor.add_sizes(size);
}

Encoded with_sizes(const std::vector<std::int64_t>& sizes) {
  Encoded encoded = encode(counting({2, 3}));
  set_sizes(*encoded.value.mutable_tensor(), sizes);
  return encoded;
}

TEST(HostileTensorTest, SizesThatDoNotMatchThePayload) {
  EXPECT_EQ(decode_error<at::Tensor>(with_sizes({2, 4})),
            "argument 2: a tensor of shape [2,4] and type FLOAT32 takes 32 bytes; its payload has "
            "24");
  EXPECT_THAT(decode_error<at::Tensor>(with_sizes({2, 2})), HasSubstr("takes 16 bytes"));
  EXPECT_THAT(decode_error<at::Tensor>(with_sizes({0, 3})), HasSubstr("takes 0 bytes"));
  EXPECT_THAT(decode_error<at::Tensor>(with_sizes({})), HasSubstr("takes 4 bytes"));
  EXPECT_THAT(decode_error<at::Tensor>(with_sizes({1 << 20, 1 << 20})),
              HasSubstr("takes 4398046511104 bytes"));
}

TEST(HostileTensorTest, SizesThatOverflow) {
  for (const std::vector<std::int64_t>& sizes :
       std::vector<std::vector<std::int64_t>>{{-1},
                                              {-2, -3},
                                              {-1, 0},
                                              {kMax},
                                              {kMax, kMax},
                                              {kMax, 2, 0},
                                              {1LL << 32, 1LL << 32, 6},
                                              {1LL << 62, 4},
                                              {std::numeric_limits<std::int64_t>::min()}}) {
    EXPECT_THAT(decode_error<at::Tensor>(with_sizes(sizes)),
                StartsWith("argument 2: a tensor cannot have the shape ["));
  }
}

TEST(HostileTensorTest, TooManyDimensions) {
  EXPECT_TRUE(decode<at::Tensor>([] {
                Encoded encoded = with_sizes(std::vector<std::int64_t>(62, 1));
                encoded.value.mutable_tensor()->add_sizes(2);
                encoded.value.mutable_tensor()->add_sizes(3);
                return encoded;
              }())
                  .defined());
  EXPECT_EQ(decode_error<at::Tensor>(with_sizes(std::vector<std::int64_t>(65, 1))),
            "argument 2: a tensor has 65 dimensions; the limit is 64");
}

TEST(HostileTensorTest, DevicesThatNobodyMayName) {
  Encoded device = encode(counting({2}));
  device.value.mutable_tensor()->mutable_device()->set_type(proto::Device::CUDA);
  EXPECT_EQ(decode_error<at::Tensor>(device),
            "argument 2: a tensor is for a device, but only workers may send such");
  device.value.mutable_tensor()->mutable_device()->set_index(128);
  EXPECT_THAT(decode_error<at::Tensor>(device), HasSubstr("a device that cannot be"));
  device.value.mutable_tensor()->mutable_device()->set_type(proto::Device::CPU);
  EXPECT_TRUE(decode<at::Tensor>(device).device().is_cpu());

  Encoded slot = encode(counting({2}));
  slot.value.mutable_tensor()->mutable_slot();
  EXPECT_THAT(decode_error<at::Tensor>(slot), HasSubstr("from device to device"));
}

TEST(HostileTensorTest, PayloadNumbers) {
  Encoded missing = encode(counting({2}));
  missing.value.mutable_tensor()->clear_payload();
  EXPECT_EQ(decode_error<at::Tensor>(missing), "argument 2: a tensor has no payload");

  Encoded beyond = encode(counting({2}));
  beyond.value.mutable_tensor()->set_payload(1);
  EXPECT_EQ(decode_error<at::Tensor>(beyond),
            "argument 2: a tensor refers to payload 1 of a message with 1");
  beyond.value.mutable_tensor()->set_payload(std::numeric_limits<std::uint32_t>::max());
  EXPECT_THAT(decode_error<at::Tensor>(beyond), HasSubstr("of a message with 1"));

  Encoded shared = encode(std::vector<at::Tensor>{counting({2}), counting({2})});
  shared.value.mutable_list()->mutable_items(1)->mutable_tensor()->set_payload(0);
  EXPECT_EQ(decode_error<std::vector<at::Tensor>>(shared),
            "argument 2, item 2: payload 0 belongs to an earlier tensor");
}

TEST(HostileTensorTest, ElementTypes) {
  for (const int dtype : {0, 14, 1000, -1}) {
    Encoded encoded = encode(counting({2}));
    encoded.value.mutable_tensor()->set_dtype(static_cast<proto::DType>(dtype));
    EXPECT_EQ(decode_error<at::Tensor>(encoded),
              "argument 2: a tensor has the unknown element type " + std::to_string(dtype));
  }
}

TEST(HostileTensorTest, BooleansOtherThanZeroAndOne) {
  Encoded encoded = encode(counting({8}, at::kBool));
  encoded.payloads[0] = absl::Cord(absl::string_view("\0\1\0\1\0\1\0\2", 8));
  EXPECT_EQ(decode_error<at::Tensor>(encoded),
            "argument 2: a tensor of booleans has bytes other than 0 and 1");
}

TEST(HostileTensorTest, OrdersThatAreNoPermutation) {
  for (const std::vector<std::int32_t>& order : std::vector<std::vector<std::int32_t>>{
           {0}, {0, 0}, {0, 2}, {-1, 0}, {0, 1, 2}, {1 << 30, -(1 << 30)}}) {
    Encoded encoded = encode(counting({2, 3}));
    encoded.value.mutable_tensor()->mutable_order()->Add(order.begin(), order.end());
    EXPECT_THAT(decode_error<at::Tensor>(encoded),
                HasSubstr("is no permutation of its 2 dimensions"));
  }
}

TEST(HostileTensorTest, GradientsOfIntegers) {
  Encoded encoded = encode(counting({2}, at::kInt));
  encoded.value.mutable_tensor()->set_requires_grad(true);
  EXPECT_EQ(decode_error<at::Tensor>(encoded),
            "argument 2: a tensor of integers or booleans says that it requires a gradient");
}

TEST(HostileTensorTest, UndefinedTensorsWithElements) {
  Encoded encoded = encode(counting({2}));
  encoded.value.mutable_tensor()->set_undefined(true);
  EXPECT_EQ(decode_error<at::Tensor>(encoded),
            "argument 2: an undefined tensor has sizes or elements");
}

TEST(HostileTensorTest, TooManyTensors) {
  const Encoded three = encode(std::vector<at::Tensor>(3));
  internal::DecodeLimits limits;
  limits.max_tensors = 2;
  const RpcError error = error_of([&] { decode<std::vector<at::Tensor>>(three, limits); });
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(error.message(), "argument 2, item 3: the message has more than 2 tensors");
}

TEST(HostileTensorTest, LargerThanTheMemory) {
  // A payload of 2^60 bytes cannot be had, but a cord that says so can: nothing reads it.
  Encoded encoded = encode(counting({2}, at::kByte));
  set_sizes(*encoded.value.mutable_tensor(), {std::int64_t{1} << 60});
  EXPECT_THAT(decode_error<at::Tensor>(encoded),
              HasSubstr("takes 1152921504606846976 bytes; its payload has 2"));
}

// --- sparse

/// Three elements of a matrix of 3 by 4, not coalesced.
Encoded sparse_matrix() {
  const at::Tensor indices = at::tensor({2, 0, 2, 1, 3, 1}, at::kLong).view({2, 3});
  return encode(at::sparse_coo_tensor(indices, at::tensor({1.f, 2.f, 3.f}), {3, 4}));
}

proto::Sparse& sparse_of(Encoded& encoded) {
  return *encoded.value.mutable_tensor()->mutable_sparse();
}

void set_indices(Encoded& encoded, const std::vector<std::int64_t>& indices) {
  encoded.payloads[0] = absl::Cord(
      absl::string_view(reinterpret_cast<const char*>(indices.data()), indices.size() * 8));
}

TEST(HostileSparseTensorTest, IndicesOutsideOfTheShape) {
  Encoded encoded = sparse_matrix();
  set_indices(encoded, {2, 0, 3, 1, 3, 1});
  EXPECT_EQ(decode_error<at::Tensor>(encoded),
            "argument 2: index 3 lies outside of dimension 0 of a sparse tensor of shape [3,4]");
  set_indices(encoded, {2, 0, 2, 1, 3, -1});
  EXPECT_EQ(decode_error<at::Tensor>(encoded),
            "argument 2: index -1 lies outside of dimension 1 of a sparse tensor of shape [3,4]");
  set_indices(encoded, {kMax, 0, 2, 1, 3, 1});
  EXPECT_THAT(decode_error<at::Tensor>(encoded), HasSubstr("lies outside of dimension 0"));
}

TEST(HostileSparseTensorTest, FalseClaimsOfBeingCoalesced) {
  Encoded encoded = sparse_matrix();
  sparse_of(encoded).set_coalesced(true);
  EXPECT_THAT(decode_error<at::Tensor>(encoded), HasSubstr("not sorted and unique"));
  set_indices(encoded, {0, 0, 2, 1, 1, 1});
  EXPECT_THAT(decode_error<at::Tensor>(encoded), HasSubstr("not sorted and unique"));
  set_indices(encoded, {0, 0, 2, 1, 2, 1});
  EXPECT_TRUE(decode<at::Tensor>(encoded).is_coalesced());
}

TEST(HostileSparseTensorTest, ShapesThatDoNotFitEachOther) {
  const auto refused = [](const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& indices,
                          const std::vector<std::int64_t>& values) {
    Encoded encoded = sparse_matrix();
    set_sizes(*encoded.value.mutable_tensor(), shape);
    set_sizes(*sparse_of(encoded).mutable_indices(), indices);
    set_sizes(*sparse_of(encoded).mutable_values(), values);
    return decode_error<at::Tensor>(encoded);
  };
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{}, {3}, {3, 4, 1}}) {
    EXPECT_THAT(refused(shape, {2, 3}, {3}), HasSubstr("cannot have indices of shape [2,3]"));
  }
  EXPECT_THAT(refused({3, 4}, {1, 6}, {3}), HasSubstr("cannot have indices"));
  EXPECT_THAT(refused({3, 4}, {3, 2}, {3}), HasSubstr("cannot have indices"));
  EXPECT_THAT(refused({3, 4}, {-1, 3}, {3}), HasSubstr("cannot have indices"));
  EXPECT_THAT(refused({3, 4}, {2, 3}, {}), HasSubstr("cannot have indices"));
  EXPECT_THAT(refused({3, 4}, {2, 3}, {1, 3}), HasSubstr("cannot have indices"));
  EXPECT_THAT(refused({3, 4}, {2, 3}, {4}), HasSubstr("cannot have indices"));
  EXPECT_THAT(refused({3, 4}, {6}, {3}), HasSubstr("must be a matrix of INT64"));
  EXPECT_THAT(refused({kMax, kMax}, {2, 3}, {3}), HasSubstr("cannot have the shape"));
  EXPECT_THAT(refused({-3, 4}, {2, 3}, {3}), HasSubstr("cannot have the shape"));
}

TEST(HostileSparseTensorTest, PartsOfTheWrongKind) {
  Encoded undefined = sparse_matrix();
  sparse_of(undefined).mutable_values()->set_undefined(true);
  EXPECT_THAT(decode_error<at::Tensor>(undefined), HasSubstr("must be row-major tensors"));

  Encoded nested = sparse_matrix();
  const proto::Sparse inner = sparse_of(nested);
  *sparse_of(nested).mutable_values()->mutable_sparse() = inner;
  EXPECT_THAT(decode_error<at::Tensor>(nested), HasSubstr("must be row-major tensors"));

  Encoded floats = sparse_matrix();
  sparse_of(floats).mutable_indices()->set_dtype(proto::FLOAT64);
  EXPECT_THAT(decode_error<at::Tensor>(floats), HasSubstr("must be a matrix of INT64"));

  Encoded differing = sparse_matrix();
  sparse_of(differing).mutable_values()->set_dtype(proto::INT32);
  EXPECT_THAT(decode_error<at::Tensor>(differing), HasSubstr("differ in their element types"));

  Encoded missing = sparse_matrix();
  sparse_of(missing).clear_indices();
  EXPECT_THAT(decode_error<at::Tensor>(missing), HasSubstr("must be a matrix of INT64"));

  Encoded both = sparse_matrix();
  both.value.mutable_tensor()->set_payload(0);
  EXPECT_THAT(decode_error<at::Tensor>(both), HasSubstr("has a payload of its own"));

  Encoded same = sparse_matrix();
  sparse_of(same).mutable_values()->set_payload(0);
  EXPECT_THAT(decode_error<at::Tensor>(same), HasSubstr("belongs to an earlier tensor"));
}

TEST(HostileSparseTensorTest, EmptyDimensionsHaveNoIndices) {
  Encoded encoded = sparse_matrix();
  set_sizes(*encoded.value.mutable_tensor(), {0, 4});
  EXPECT_THAT(decode_error<at::Tensor>(encoded), HasSubstr("lies outside of dimension 0"));
}

}  // namespace
}  // namespace sinew::testing
