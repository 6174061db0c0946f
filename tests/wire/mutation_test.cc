#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/tests/support/mutate.h"
#include "sinew/tests/wire/decode_everything.h"
#include "sinew/tests/wire/tensor_test_support.h"
#include "wire_fixture.pb.h"

namespace sinew::testing {
namespace {

using Variant = std::variant<int, std::string, at::Tensor>;

constexpr int kIterations = 20000;

std::uint64_t seed() {
  const char* chosen = std::getenv("SINEW_TEST_SEED");
  return chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 20240601;
}

/// In the form that decode_everything() takes. Payloads must be multiples of 8 bytes.
std::string flatten(const Encoded& encoded) {
  std::string header;
  std::string payloads;
  for (const absl::Cord& payload : encoded.payloads) {
    EXPECT_EQ(payload.size() % 8, 0U);
    header += static_cast<char>(payload.size() / 8);
    payloads += std::string(payload);
  }
  header.resize(3);
  return header + payloads + encoded.value.SerializeAsString();
}

template <class... Ts>
std::vector<std::string> corpus_of(const Ts&... values) {
  return {flatten(encode(values))...};
}

std::vector<std::string> corpus() {
  Pose pose;
  pose.set_frame("map");
  const at::Tensor sparse = at::sparse_coo_tensor(at::tensor({0, 1, 2, 3}, at::kLong).view({2, 2}),
                                                  counting({2}, at::kLong), {3, 4});
  return corpus_of(true, -5, ~std::uint64_t{0}, 1.5, std::string("text"), Bytes("\xFF"),
                   std::vector<int>{1, 2, 3}, std::vector<double>{1, 2},
                   std::vector<bool>{true, false}, std::vector<std::vector<int>>{{1}, {2, 3}},
                   std::make_tuple(1, std::string("a"), 2.5),
                   std::map<std::string, int>{{"a", 1}, {"b", 2}},
                   std::map<int, std::vector<std::string>>{{1, {"x", "y"}}}, pose,
                   WorkerInfo{"trainer", 1, Incarnation{77}}, counting({2, 3, 4}),
                   counting({4, 6}).t(), counting({8}, at::kBool), sparse, sparse.coalesce(),
                   std::vector<at::Tensor>{counting({2}), at::Tensor(), counting({2, 2}).t()},
                   std::map<std::string, at::Tensor>{{"w", counting({4}, at::kHalf)}},
                   std::vector<at::Scalar>{true, 3, 2.5, c10::complex<double>(1, 2)},
                   std::chrono::milliseconds(1500), std::chrono::duration<double>(0.25),
                   Variant(counting({2})), std::vector<Variant>{Variant(5), Variant("text")});
}

TEST(MutationTest, ValidMessagesDecode) {
  for (const std::string& bytes : corpus()) EXPECT_GE(decode_everything(bytes), 1U);
}

TEST(MutationTest, MutatedMessagesEndInErrorsOnly) {
  const google::protobuf::LogSilencer silencer;
  const std::uint64_t used_seed = seed();
  SCOPED_TRACE(used_seed);
  RecordProperty("seed", std::to_string(used_seed));
  const std::vector<std::string> valid = corpus();
  SplitMix64 random(used_seed);
  std::size_t accepted = 0;
  for (int i = 0; i < kIterations; ++i) {
    SCOPED_TRACE(i);
    accepted += decode_everything(mutate(valid, random)) > 0 ? 1 : 0;
  }
  // Mutations that all broke the outermost message would test nothing.
  EXPECT_GT(accepted, static_cast<std::size_t>(kIterations) / 10);
  EXPECT_LT(accepted, static_cast<std::size_t>(kIterations));
}

}  // namespace
}  // namespace sinew::testing
