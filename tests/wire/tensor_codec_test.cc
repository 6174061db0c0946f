#include "sinew/rpc/wire/tensor_codec.h"

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sinew/rpc/base/receive_pool.h"
#include "sinew/tests/wire/tensor_test_support.h"

namespace sinew::testing {
namespace {

using ::testing::HasSubstr;

std::string encode_error(const at::Tensor& tensor) {
  const RpcError error = error_of([&] { encode(tensor); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  return error.message();
}

TEST(TensorRoundTripTest, EveryElementType) {
  for (const at::ScalarType type : kAllElementTypes) {
    SCOPED_TRACE(c10::toString(type));
    for (const at::Tensor& tensor :
         {counting({2, 3}, type), counting({}, type), counting({0}, type),
          counting({3, 0, 2}, type), counting({40, 60}, type), counting({3, 4}, type).t(),
          counting({60, 40}, type).t()}) {
      const at::Tensor back = round_trip(tensor);
      expect_same(tensor, back);
      EXPECT_EQ(tensor.numel() == 0 || tensor.strides() == back.strides(), true);
    }
  }
}

TEST(TensorRoundTripTest, EveryElementTypeInCompletelyEveryBit) {
  // Numbers that are no numbers included: the bytes are what counts.
  for (const at::ScalarType type : kAllElementTypes) {
    if (type == at::kBool) continue;
    const at::Tensor bytes = at::randint(0, 256, {64 * 16}, at::kByte);
    const at::Tensor tensor = bytes.view(type);
    expect_same(tensor, round_trip(tensor));
  }
}

TEST(TensorRoundTripTest, UndefinedTensor) {
  const Encoded encoded = encode(at::Tensor());
  EXPECT_TRUE(encoded.payloads.empty());
  EXPECT_FALSE(round_trip(at::Tensor()).defined());
  EXPECT_FALSE(round_trip(std::optional<at::Tensor>(at::Tensor()))->defined());
}

TEST(TensorRoundTripTest, CarriesRequiresGradButNoGraph) {
  const at::Tensor leaf = counting({3}).requires_grad_();
  const at::Tensor inner = leaf * 2;
  ASSERT_TRUE(inner.requires_grad() && !inner.is_leaf());
  const at::Tensor back = round_trip(inner);
  EXPECT_TRUE(back.requires_grad());
  EXPECT_TRUE(back.is_leaf());
  EXPECT_TRUE(round_trip(leaf).requires_grad());
  EXPECT_FALSE(round_trip(counting({3})).requires_grad());
  EXPECT_TRUE(round_trip(counting({3}, at::kComplexFloat).requires_grad_()).requires_grad());
}

TEST(TensorRoundTripTest, InContainers) {
  const at::Tensor a = counting({2, 2});
  const auto list = round_trip(std::vector<at::Tensor>{a, at::Tensor(), a});
  ASSERT_EQ(list.size(), 3U);
  expect_same(a, list[0]);
  EXPECT_FALSE(list[1].defined());
  expect_same(a, list[2]);
  // What was passed twice are two tensors at the receiver.
  EXPECT_FALSE(list[0].is_alias_of(list[2]));
  const auto map = round_trip(std::map<std::string, at::Tensor>{{"w", a}});
  expect_same(a, map.at("w"));
}

TEST(TensorRoundTripTest, TheReceiversMemoryIsItsOwn) {
  const at::Tensor large = counting({10000});
  const Encoded encoded = encode(large);
  const at::Tensor back = decode<at::Tensor>(encoded);
  back.zero_();
  EXPECT_EQ(large[5].item<float>(), 5);
}

TEST(TensorRoundTripTest, PayloadsInManyChunks) {
  const at::Tensor tensor = counting({1000}, at::kDouble);
  Encoded encoded = encode(tensor);
  const std::string bytes(encoded.payloads[0]);
  absl::Cord pieces;
  for (std::size_t at = 0; at < bytes.size(); at += 777) {
    pieces.Append(absl::MakeCordFromExternal(absl::string_view(bytes).substr(at, 777),
                                             [](absl::string_view) {}));
  }
  ASSERT_FALSE(pieces.TryFlat().has_value());
  encoded.payloads[0] = pieces;
  expect_same(tensor, decode<at::Tensor>(encoded));
}

// --- layouts and views: what is shipped, and what comes back

TEST(TensorLayoutCodecTest, TransposedTensorsKeepTheirStridesWithoutACopy) {
  const at::Tensor tensor = counting({60, 40}).t();
  const Encoded encoded = encode(tensor);
  EXPECT_TRUE(is_aliased(encoded, tensor));
  EXPECT_EQ(payload_bytes(encoded), tensor.nbytes());
  const at::Tensor back = decode<at::Tensor>(encoded);
  EXPECT_EQ(back.strides(), tensor.strides());
  EXPECT_FALSE(back.is_contiguous());
  EXPECT_TRUE(at::equal(back, tensor));
}

TEST(TensorLayoutCodecTest, ChannelsLastStaysChannelsLast) {
  const at::Tensor tensor = counting({2, 3, 16, 16}).contiguous(at::MemoryFormat::ChannelsLast);
  const Encoded encoded = encode(tensor);
  EXPECT_TRUE(is_aliased(encoded, tensor));
  const at::Tensor back = decode<at::Tensor>(encoded);
  EXPECT_TRUE(back.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::equal(back, tensor));
}

TEST(TensorLayoutCodecTest, ContiguousTensorsStayContiguous) {
  EXPECT_TRUE(round_trip(counting({5, 2})).is_contiguous());
}

TEST(TensorLayoutCodecTest, AViewShipsItsOwnBytesOnly) {
  const at::Tensor storage = counting({1000, 1000});
  const at::Tensor rows = storage.narrow(0, 100, 3);
  const Encoded encoded = encode(rows);
  EXPECT_EQ(payload_bytes(encoded), 3U * 1000 * sizeof(float));
  EXPECT_TRUE(is_aliased(encoded, rows));
  expect_same(rows, decode<at::Tensor>(encoded));

  const at::Tensor small = storage[7].narrow(0, 5, 2);
  EXPECT_EQ(payload_bytes(encode(small)), 2 * sizeof(float));
  expect_same(small, round_trip(small));
}

TEST(TensorLayoutCodecTest, ScatteredTensorsBecomeRowMajor) {
  const at::Tensor base = counting({100, 100});
  for (const at::Tensor& tensor :
       {base.narrow(1, 10, 50), base.slice(0, 0, 100, 3), base.t().narrow(0, 3, 40),
        counting({100}).view({100, 1}).expand({100, 100}), counting({1}).expand({100, 100}),
        base.as_strided({60, 60}, {1, 1})}) {
    const Encoded encoded = encode(tensor);
    EXPECT_EQ(payload_bytes(encoded), static_cast<std::size_t>(tensor.numel()) * sizeof(float));
    EXPECT_EQ(encoded.value.tensor().order_size(), 0);
    const at::Tensor back = decode<at::Tensor>(encoded);
    EXPECT_TRUE(back.is_contiguous());
    EXPECT_TRUE(at::equal(back, tensor));
  }
}

TEST(TensorLayoutCodecTest, ConjugatedAndNegatedViewsAreResolved) {
  for (const std::int64_t size : {3, 3000}) {
    const at::Tensor tensor = at::complex(counting({size}), counting({size}) + 1);
    ASSERT_TRUE(tensor.conj().is_conj());
    EXPECT_TRUE(at::equal(round_trip(tensor.conj()), tensor.conj().resolve_conj()));
    const at::Tensor negated = at::imag(tensor.conj());
    ASSERT_TRUE(negated.is_neg());
    EXPECT_TRUE(at::equal(round_trip(negated), negated.resolve_neg()));
  }
}

TEST(TensorLayoutCodecTest, ZeroTensorsHaveElements) {
  const at::Tensor zeros =
      at::_efficientzerotensor({50, 50}, at::TensorOptions().dtype(at::kFloat));
  EXPECT_TRUE(at::equal(round_trip(zeros), at::zeros({50, 50})));
}

// --- who owns the memory of a payload

TEST(TensorAliasTest, LargeTensorsAreNotCopiedAndKeptAlive) {
  at::Tensor tensor = counting({10000});
  const void* memory = tensor.data_ptr();
  Encoded encoded = encode(tensor);
  EXPECT_TRUE(is_aliased(encoded, tensor));
  EXPECT_EQ(tensor.storage().use_count(), 2U);
  tensor.reset();
  const auto flat = encoded.payloads[0].TryFlat();
  EXPECT_EQ(static_cast<const void*>(flat->data()), memory);
  EXPECT_EQ(reinterpret_cast<const float*>(flat->data())[9999], 15.f);  // 9999 mod 128
}

TEST(TensorAliasTest, DecodingLetsGoOfThePayload) {
  const at::Tensor tensor = counting({10000});
  Encoded encoded = encode(tensor);
  internal::DecodeContext context(std::move(encoded.payloads));
  encoded.payloads.clear();
  ASSERT_EQ(tensor.storage().use_count(), 2U);
  const at::Tensor back =
      Codec<at::Tensor>::decode(ValueReader(encoded.value, context, ValuePath()));
  EXPECT_EQ(tensor.storage().use_count(), 1U);
  expect_same(tensor, back);
}

/// A payload as the bulk lane receives it.
absl::Cord pooled(const at::Tensor& tensor) {
  auto block = internal::ReceivePool::of_process().allocate(tensor.nbytes());
  std::memcpy(block->data(), tensor.data_ptr(), tensor.nbytes());
  const absl::string_view bytes(block->data(), tensor.nbytes());
  return absl::MakeCordFromExternal(bytes, [block = std::move(block)] {});
}

TEST(TensorPoolTest, WhatIsInAPoolsBlockStaysThere) {
  const std::size_t used = internal::ReceivePool::of_process().stats().used_bytes;
  const at::Tensor tensor = counting({500, 300}, at::kFloat);
  Encoded encoded = encode(tensor.t());
  encoded.payloads = {pooled(tensor)};
  const char* const received = encoded.payloads[0].Flatten().data();
  at::Tensor back = decode<at::Tensor>(encoded);
  EXPECT_EQ(static_cast<const char*>(back.data_ptr()), received);
  expect_same(tensor.t(), back);
  EXPECT_EQ(tensor.t().strides(), back.strides());
  // Somebody else has the payload too: a second tensor gets memory of its own.
  at::Tensor second = decode<at::Tensor>(encoded);
  second.zero_();
  expect_same(tensor.t(), back);

  encoded = {};
  back.zero_();
  back.resize_({1000, 1000}).fill_(2);
  EXPECT_EQ(back.sum().item<float>(), 2e6F);
  back = at::Tensor();
  second = at::Tensor();
  EXPECT_EQ(internal::ReceivePool::of_process().stats().used_bytes, used);
}

TEST(TensorPoolTest, AReceivedTensorThatIsPassedOnIsNotGivenAway) {
  const at::Tensor tensor = counting({500, 300}, at::kFloat);
  Encoded encoded = encode(tensor);
  encoded.payloads = {pooled(tensor)};
  const at::Tensor received = decode<at::Tensor>(encoded);
  encoded = encode(received);
  const at::Tensor copied = decode<at::Tensor>(encoded);
  encoded = encode(copied);
  decode<at::Tensor>(encoded).zero_();
  expect_same(tensor, copied);
  expect_same(tensor, received);
}

TEST(TensorPoolTest, WhatIsCopiedGoesToThePoolToo) {
  const std::size_t used = internal::ReceivePool::of_process().stats().used_bytes;
  at::Tensor back = round_trip(counting({500, 300}, at::kFloat));
  EXPECT_GE(internal::ReceivePool::of_process().stats().used_bytes, used + back.nbytes());
  back.set_requires_grad(true);
  const at::Tensor kept = back.detach();
  back = at::Tensor();
  EXPECT_GT(internal::ReceivePool::of_process().stats().used_bytes, used);
}

TEST(TensorAliasTest, SmallTensorsAreCopied) {
  const at::Tensor largest = counting({1023});
  const Encoded encoded = encode(largest);
  EXPECT_FALSE(is_aliased(encoded, largest));
  const at::Tensor before = largest.clone();
  largest.zero_();
  expect_same(before, decode<at::Tensor>(encoded));
  const at::Tensor larger = counting({1024});
  EXPECT_TRUE(is_aliased(encode(larger), larger));
}

TEST(TensorAliasTest, BorrowedMemoryIsCopied) {
  std::vector<float> memory(10000, 1.f);
  int context = 0;
  const at::Tensor plain = at::from_blob(memory.data(), {100, 100});
  const at::Tensor strided = at::from_blob(memory.data(), {100, 100}, {1, 100});
  const at::Tensor with_context =
      at::for_blob(memory.data(), {100, 100}).context(&context).make_tensor();
  for (const at::Tensor& tensor : {plain, strided, with_context, plain.narrow(0, 1, 50)}) {
    const Encoded encoded = encode(tensor);
    EXPECT_FALSE(is_aliased(encoded, tensor));
    std::fill(memory.begin(), memory.end(), 2.f);
    const at::Tensor back = decode<at::Tensor>(encoded);
    EXPECT_TRUE(at::equal(back, at::ones_like(tensor)));
    EXPECT_EQ(back.strides(), tensor.strides());
    std::fill(memory.begin(), memory.end(), 1.f);
  }
}

TEST(TensorAliasTest, MemoryWithADeleterIsKeptAlive) {
  auto memory = std::make_unique<std::vector<float>>(10000, 1.f);
  bool deleted = false;
  at::Tensor tensor = at::from_blob(memory->data(), {10000}, [&](void*) { deleted = true; });
  Encoded encoded = encode(tensor);
  EXPECT_TRUE(is_aliased(encoded, tensor));
  tensor.reset();
  EXPECT_FALSE(deleted);
  encoded.payloads.clear();
  EXPECT_TRUE(deleted);
}

TEST(TensorAliasTest, PayloadsHoldNoGraph) {
  at::Tensor leaf = counting({10000}).requires_grad_();
  at::Tensor inner = leaf * 2;
  const auto node = std::weak_ptr<torch::autograd::Node>(inner.grad_fn());
  const Encoded encoded = encode(inner);
  EXPECT_EQ(encoded.payloads[0].size(), 40000U);
  inner.reset();
  EXPECT_TRUE(node.expired());
}

TEST(TensorAliasTest, StorageThatWasCutIsRefused) {
  const at::Tensor tensor = counting({10000});
  tensor.storage().set_nbytes(100);
  EXPECT_EQ(encode_error(tensor),
            "a tensor needs bytes 0 to 40000 of its storage, which was resized to 100");
}

// --- sparse

at::Tensor sparse_matrix() {
  const at::Tensor indices = at::tensor({2, 0, 2, 1, 3, 1}, at::kLong).view({2, 3});
  return at::sparse_coo_tensor(indices, at::tensor({1.f, 2.f, 3.f}), {3, 4});
}

void expect_same_sparse(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(b.layout(), at::kSparse);
  EXPECT_EQ(a.sizes(), b.sizes());
  EXPECT_EQ(a.is_coalesced(), b.is_coalesced());
  EXPECT_EQ(a.requires_grad(), b.requires_grad());
  expect_same(a.detach()._indices(), b.detach()._indices());
  expect_same(a.detach()._values(), b.detach()._values());
}

TEST(SparseTensorTest, RoundTrip) {
  const at::Tensor uncoalesced = sparse_matrix();
  ASSERT_FALSE(uncoalesced.is_coalesced());
  const at::Tensor coalesced = uncoalesced.coalesce();
  const at::Tensor hybrid = at::sparse_coo_tensor(at::tensor({4, 4}, at::kLong).view({1, 2}),
                                                  counting({2, 3, 5}), {6, 3, 5});
  for (const at::Tensor& tensor :
       {uncoalesced, coalesced, hybrid, hybrid.coalesce(), at::Tensor(sparse_matrix().t()),
        at::sparse_coo_tensor({3, 4}, at::TensorOptions().dtype(at::kDouble)),
        at::sparse_coo_tensor({0, 4}, at::TensorOptions().dtype(at::kFloat)),
        at::tensor(5.f).to_sparse(), uncoalesced.to(at::kLong), uncoalesced.to(at::kHalf),
        uncoalesced.clone().requires_grad_()}) {
    expect_same_sparse(tensor, round_trip(tensor));
  }
}

TEST(SparseTensorTest, LargePartsAreNotCopied) {
  const at::Tensor dense = at::ones({50, 50});
  const at::Tensor sparse = dense.to_sparse();
  const Encoded encoded = encode(sparse);
  ASSERT_EQ(encoded.payloads.size(), 2U);
  EXPECT_EQ(encoded.payloads[1].TryFlat()->data(),
            static_cast<const char*>(sparse._values().data_ptr()));
  EXPECT_TRUE(at::equal(decode<at::Tensor>(encoded).to_dense(), dense));
}

TEST(SparseTensorTest, InContainers) {
  const auto back = round_trip(std::vector<at::Tensor>{sparse_matrix(), sparse_matrix()});
  ASSERT_EQ(back.size(), 2U);
  expect_same_sparse(sparse_matrix(), back[1]);
}

// --- what does not travel

TEST(TensorRefusalTest, SaysWhatToDo) {
  EXPECT_THAT(encode_error(at::empty({3}, at::TensorOptions().device(at::kMeta))),
              HasSubstr("meta device"));
  EXPECT_THAT(encode_error(at::quantize_per_tensor(counting({4}), 0.1, 0, at::kQInt8)),
              HasSubstr("tensor.dequantize()"));
  EXPECT_EQ(encode_error(at::ones({3, 3}).to_sparse_csr()),
            "a tensor of layout SparseCsr cannot be sent; pass tensor.to_dense() or "
            "tensor.to_sparse()");
  EXPECT_THAT(encode_error(at::_nested_tensor_from_tensor_list({counting({2}), counting({3})})),
              HasSubstr("tensor.unbind()"));
  EXPECT_THAT(encode_error(at::full({9}, 2, at::kByte).view(at::kBool)),
              HasSubstr("tensor.view(at::kByte).ne(0)"));
  if (at::hasMKLDNN()) {
    EXPECT_THAT(encode_error(counting({4, 4}).to_mkldnn()), HasSubstr("tensor.to_dense()"));
  }
}

TEST(TensorSizeTest, MoreThanTwoGigabytes) {
  // Never touched, so it takes address space only.
  const at::Tensor huge = at::empty({3, 1 << 30}, at::kByte);
  const Encoded encoded = encode(huge);
  EXPECT_TRUE(is_aliased(encoded, huge));
  EXPECT_EQ(payload_bytes(encoded), std::size_t{3} << 30);
}

}  // namespace
}  // namespace sinew::testing
