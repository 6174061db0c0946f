// What a version of weights is made of: its layout, its memory, and what changes from one to the
// next; and all that others may say of it.

#include <unistd.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/optim/internal/weights_layout.h"
#include "sinew/optim/internal/weights_snapshot.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40;

NamedShape floats(std::string name, std::vector<std::int64_t> sizes) {
  return {std::move(name), static_cast<std::int32_t>(at::kFloat), std::move(sizes)};
}
std::string fault_of(std::vector<NamedShape> tensors, std::uint64_t most = kPlenty) {
  const auto layout = WeightsLayout::make(std::move(tensors), most);
  return layout.ok() ? "" : std::string(layout.status().message());
}
std::string copy_fault(const optim::StateDict& tensors) {
  const auto copy = copy_weights(tensors, false);
  return copy.ok() ? "" : std::string(copy.status().message());
}
WeightsContent content_of(const optim::StateDict& tensors, bool as_bf16 = false) {
  return *seal_weights(*copy_weights(tensors, as_bf16));
}

TEST(WeightsLayout, TensorsLieOneAfterTheOther) {
  const auto layout =
      WeightsLayout::make({floats("a", {3}), floats("b", {}), floats("c", {0, 5})}, kPlenty);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->places()[1].offset, 64U);
  EXPECT_EQ(layout->places()[1].elements, 1U);
  EXPECT_EQ(layout->bytes(), 128U);
}

TEST(WeightsLayout, WhatCannotBeIsRefused) {
  EXPECT_EQ(fault_of(std::vector<NamedShape>()), "weights: a version has no tensors");
  EXPECT_EQ(fault_of({floats("a", {1}), floats("a", {1})}), "weights: tensor 'a' is there twice");
  EXPECT_EQ(fault_of({floats("b", {1}), floats("a", {1})}), "weights: tensor 'a' is not in order");
  EXPECT_EQ(fault_of({floats("a", {-1})}), "weights: tensor 'a' has a negative size");
  EXPECT_EQ(fault_of({{"a", 12345, {1}}}),
            "weights: tensor 'a' has elements of a type that does not travel");
  EXPECT_EQ(fault_of({floats("a", {300})}, 1000),
            "weights: tensor 'a' makes the version larger than the 1000 bytes that are allowed");
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(fault_of({floats("a", {kHuge, kHuge, kHuge})}), HasSubstr("larger"));
  EXPECT_EQ(fault_of({floats("a", {kHuge, 0})}), "");
  EXPECT_THAT(fault_of({floats(std::string(5000, 'x'), {1})}), HasSubstr("4096"));
}

TEST(WeightsCopy, WhatIsPublishedIsChecked) {
  EXPECT_EQ(copy_fault(optim::StateDict()), "weights: a version has no tensors");
  EXPECT_EQ(copy_fault(optim::StateDict{{"a", at::Tensor()}}), "weights: tensor 'a' is undefined");
  EXPECT_THAT(copy_fault({{"a", at::empty({1}, at::kMeta)}}), HasSubstr("meta device"));
  EXPECT_THAT(copy_fault({{"a", at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8)}}),
              HasSubstr("dequantize"));
}

TEST(WeightsCopy, IsDenseAndRowMajor) {
  const at::Tensor matrix = at::arange(6, at::kFloat).view({2, 3});
  const optim::StateDict state = {{"t", matrix.t()},
                                  {"row", matrix.select(1, 1)},
                                  {"sparse", matrix.to_sparse()},
                                  {"conj", at::ones({2}, at::kComplexFloat).conj()},
                                  {"none", at::empty({0, 3})},
                                  {"grad", at::ones({1}).requires_grad_()},
                                  {"half", at::ones({2}, at::kHalf)}};
  const optim::StateDict read = *tensors_of(content_of(state));
  ASSERT_EQ(read.size(), state.size());
  for (const auto& [name, tensor] : read) {
    EXPECT_TRUE(tensor.equal(state.at(name).to_dense())) << name;
    EXPECT_FALSE(tensor.requires_grad());
  }
}

TEST(WeightsCopy, FloatsMayBecomeBfloat16) {
  const at::Tensor large = at::randn({1'500'000});
  const optim::StateDict state = {
      {"f", large}, {"i", at::arange(3)}, {"d", at::ones({2}, at::kDouble)}};
  const optim::StateDict read = *tensors_of(content_of(state, true));
  EXPECT_TRUE(read.at("f").equal(large.to(at::kBFloat16)));
  EXPECT_EQ(read.at("d").scalar_type(), at::kBFloat16);
  EXPECT_TRUE(read.at("i").equal(at::arange(3)));
}

TEST(WeightsCopy, WhatAUserWritesIsTheUsersAlone) {
  const WeightsContent content = content_of({{"a", at::ones({1000})}});
  const optim::StateDict mine = *tensors_of(content);
  mine.at("a").zero_();
  EXPECT_TRUE(tensors_of(content)->at("a").equal(at::ones({1000})));
  EXPECT_EQ(content.layout.digest({content.bytes->data(), content.bytes->size()}), content.digest);
}

// ---- Memory of other processes.

TEST(SharedBytes, AreOpenedOnlyIfTheyAreWhatTheyShouldBe) {
  const WeightsContent content = content_of({{"a", at::ones({1000})}});
  const SharedPlace place = content.bytes->place();
  const auto opened = SharedBytes::open(place, content.bytes->size());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(std::memcmp((*opened)->data(), content.bytes->data(), content.bytes->size()), 0);
  const auto fault = [](SharedPlace from, std::size_t size) {
    const auto bytes = SharedBytes::open(from, size);
    return bytes.ok() ? "" : std::string(bytes.status().message());
  };
  EXPECT_THAT(fault(place, content.bytes->size() + 1), HasSubstr("not what they should be"));
  EXPECT_THAT(fault({place.process, place.descriptor, "sinew-weights-other"}, 4000),
              HasSubstr("not there"));
  EXPECT_THAT(fault({place.process, 0, place.name}, 4000), HasSubstr("not there"));
  EXPECT_THAT(fault({-1, -1, "/../../etc/passwd"}, 4000), HasSubstr("not there"));
  // What is not sealed can still change.
  const auto writer = SharedBytes::Writer::make(100);
  ASSERT_TRUE(writer.ok());
  for (int descriptor = 3; descriptor < 100; ++descriptor) {
    char link[256] = {};
    const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
    if (::readlink(path.c_str(), link, sizeof link - 1) <= 0) continue;
    const std::string name(link);
    if (name.rfind("/memfd:sinew-weights-", 0) != 0) continue;
    const std::string text = name.substr(7, name.find(' ') - 7);
    if (text == place.name) continue;
    if ((*opened)->place().name == text) continue;
    EXPECT_THAT(fault({::getpid(), descriptor, text}, 100), HasSubstr("not what they should be"));
  }
  EXPECT_FALSE(writer->write(50, "x", 51).ok());
  EXPECT_FALSE(writer->write(std::numeric_limits<std::size_t>::max(), "x", 1).ok());
}

TEST(WeightsSnapshot, GivesOnlyWhatItHas) {
  const WeightsSnapshot snapshot(content_of({{"a", at::ones({1000})}}), {});
  EXPECT_EQ(snapshot.read(0, 4000).nbytes(), 4000U);
  EXPECT_EQ(snapshot.read(4000, 0).nbytes(), 0U);
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THROW(snapshot.read(0, 4001), RpcError);
  EXPECT_THROW(snapshot.read(kHuge, 1), RpcError);
  EXPECT_THROW(snapshot.read(1, kHuge), RpcError);
  EXPECT_EQ(snapshot.changes("unknown").numel(), 0);
}

// ---- Changes.

TEST(WeightsChanges, MakeTheLaterVersion) {
  std::mt19937_64 random(7);
  const std::vector<at::ScalarType> types = {at::kByte,   at::kBool,        at::kBFloat16,
                                             at::kHalf,   at::kFloat,       at::kLong,
                                             at::kDouble, at::kComplexFloat};
  for (int turn = 0; turn < 50; ++turn) {
    optim::StateDict before;
    optim::StateDict after;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      const auto size = static_cast<std::int64_t>(random() % 3000);
      before[name] = at::randint(0, 2, {size}).to(types[i]);
      after[name] = before[name].clone();
      for (std::uint64_t k = random() % 20; k > 0 && size > 0; --k) {
        after[name][static_cast<std::int64_t>(random()) % size].fill_(
            static_cast<double>(random() % 2));
      }
    }
    const WeightsContent from = content_of(before);
    const WeightsContent to = content_of(after);
    const auto changes =
        encode_changes(to.layout, from.bytes->data(), to.bytes->data(), to.bytes->size());
    ASSERT_TRUE(changes.has_value());
    const auto made = change_weights(from, *changes);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->digest, to.digest);
  }
}

TEST(WeightsChanges, TooManyAreNone) {
  const WeightsContent from = content_of({{"a", at::randn({5000})}});
  const WeightsContent to = content_of({{"a", at::randn({5000})}});
  EXPECT_FALSE(encode_changes(to.layout, from.bytes->data(), to.bytes->data(), 10'000).has_value());
  const WeightsSnapshot snapshot(to, {from});
  EXPECT_EQ(snapshot.changes(from.digest).numel(), 0);
}

TEST(WeightsChanges, AStrangersBytesChangeNothingElse) {
  const WeightsContent base =
      content_of({{"a", at::zeros({100}, at::kByte)}, {"b", at::zeros({10}, at::kBFloat16)}});
  const auto fault = [&](const std::string& changes) {
    const auto made = change_weights(base, changes);
    return made.ok() ? "" : std::string(made.status().message());
  };
  EXPECT_EQ(fault("\x05"), "weights: changes end within a number");
  EXPECT_EQ(fault(std::string(20, '\xff')), "weights: changes end within a number");
  EXPECT_EQ(fault("\x7f\x02"), "weights: a change is behind the last element");
  EXPECT_EQ(fault(std::string("\x00\xff\x7f", 3)), "weights: a change is wider than its element");
  std::mt19937_64 random(3);
  for (int turn = 0; turn < 5'000; ++turn) {
    std::string changes(random() % 40, '\0');
    for (char& each : changes) each = static_cast<char>(random() % (turn % 2 == 0 ? 256 : 8));
    static_cast<void>(change_weights(base, changes));
  }
}

}  // namespace
}  // namespace sinew::internal
