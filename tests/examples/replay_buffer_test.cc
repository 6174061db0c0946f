#include "sinew/examples/actor_learner/learner/replay_buffer.h"

#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/actor_learner/shared/policy.h"
#include "sinew/examples/common/archives.h"

namespace actor_learner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Rows that all say the same number, from `first` on.
Transitions numbered(std::int64_t first, std::int64_t count) {
  const at::Tensor numbers = at::arange(first, first + count, at::kFloat);
  const auto wide = [&](std::int64_t width) {
    return numbers.unsqueeze(1).expand({count, width}).clone();
  };
  return {wide(kObservationSize), wide(kActionSize), numbers, wide(kObservationSize),
          at::zeros({count})};
}

std::string saved(const ReplayBuffer& buffer) {
  torch::serialize::OutputArchive archive;
  buffer.save(archive);
  return examples::to_bytes(archive);
}

void restore(ReplayBuffer& buffer, const std::string& bytes) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  buffer.load(archive);
}

/// The numbers of the rows that there are.
std::set<int> numbers(const ReplayBuffer& buffer) {
  at::Generator random = make_random(1);
  const Transitions drawn = buffer.sample(400, random);
  std::set<int> found;
  for (std::int64_t i = 0; i < drawn.steps(); ++i) {
    const float number = drawn.rewards[i].item<float>();
    EXPECT_TRUE(drawn.observations[i].eq(number).all().item<bool>()) << "a row is one step";
    EXPECT_TRUE(drawn.actions[i].eq(number).all().item<bool>());
    EXPECT_TRUE(drawn.next_observations[i].eq(number).all().item<bool>());
    found.insert(static_cast<int>(number));
  }
  return found;
}

TEST(ReplayBuffer, KeepsTheNewestOnes) {
  ReplayBuffer buffer(5);
  EXPECT_EQ(buffer.size(), 0);
  buffer.add(numbered(0, 3));
  EXPECT_EQ(buffer.size(), 3);
  EXPECT_THAT(numbers(buffer), ElementsAre(0, 1, 2));
  buffer.add(numbered(3, 4));
  EXPECT_EQ(buffer.size(), 5);
  EXPECT_THAT(numbers(buffer), ElementsAre(2, 3, 4, 5, 6));
  buffer.add(numbered(7, 12));
  EXPECT_THAT(numbers(buffer), ElementsAre(14, 15, 16, 17, 18));
  buffer.add(numbered(19, 0));
  EXPECT_THAT(numbers(buffer), ElementsAre(14, 15, 16, 17, 18));
}

TEST(ReplayBuffer, DrawsEachAsOftenAndAsTheGeneratorSays) {
  ReplayBuffer buffer(10);
  buffer.add(numbered(0, 4));
  at::Generator random = make_random(5);
  const at::Tensor drawn = buffer.sample(4000, random).rewards;
  for (int number = 0; number < 4; ++number) {
    EXPECT_NEAR(drawn.eq(number).sum().item<int>(), 1000, 150) << number;
  }
  at::Generator same = make_random(5);
  EXPECT_TRUE(buffer.sample(4000, same).rewards.equal(drawn));
}

TEST(ReplayBuffer, SamplesAreCopies) {
  ReplayBuffer buffer(2);
  buffer.add(numbered(1, 1));
  at::Generator random = make_random(1);
  const Transitions drawn = buffer.sample(1, random);
  buffer.add(numbered(8, 2));
  EXPECT_EQ(drawn.rewards.item<float>(), 1);
}

TEST(ReplayBuffer, OutlivesAnArchiveInItsOrder) {
  ReplayBuffer buffer(5);
  buffer.add(numbered(0, 8));
  ReplayBuffer same(5);
  restore(same, saved(buffer));
  EXPECT_THAT(numbers(same), ElementsAre(3, 4, 5, 6, 7));
  same.add(numbered(8, 1));
  EXPECT_THAT(numbers(same), ElementsAre(4, 5, 6, 7, 8)) << "the oldest one goes first";
  // Another capacity.
  ReplayBuffer smaller(2);
  restore(smaller, saved(buffer));
  EXPECT_THAT(numbers(smaller), ElementsAre(6, 7));
  ReplayBuffer larger(50);
  restore(larger, saved(buffer));
  EXPECT_EQ(larger.size(), 5);
  ReplayBuffer empty(5);
  restore(larger, saved(empty));
  EXPECT_EQ(larger.size(), 0);
}

TEST(ReplayBuffer, RefusesWhatIsNone) {
  EXPECT_THROW(ReplayBuffer(0), std::invalid_argument);
  ReplayBuffer buffer(5);
  at::Generator random = make_random(1);
  EXPECT_THROW(buffer.sample(1, random), std::logic_error);
  const auto refusal = [&](auto change, const std::string& text) {
    Transitions wrong = numbered(0, 3);
    change(wrong);
    EXPECT_THAT([&] { buffer.add(wrong); }, ThrowsMessage<std::invalid_argument>(HasSubstr(text)));
  };
  refusal([](Transitions& t) { t.actions = at::zeros({3, 2}); }, "actions");
  refusal([](Transitions& t) { t.actions = at::zeros({4, 1}); }, "actions");
  refusal([](Transitions& t) { t.rewards = at::zeros({3}, at::kDouble); }, "rewards");
  refusal([](Transitions& t) { t.rewards = at::zeros({3, 1}); }, "observations");
  refusal([](Transitions& t) { t.rewards = at::Tensor(); }, "observations");
  refusal([](Transitions& t) { t.next_observations = at::Tensor(); }, "next_observations");
  refusal([](Transitions& t) { t.terminals = at::zeros({3}).to_sparse(); }, "terminals");
  refusal(
      [](Transitions& t) { t.rewards.select(0, 1).fill_(std::numeric_limits<float>::quiet_NaN()); },
      "not finite");
  EXPECT_EQ(buffer.size(), 0);
}

}  // namespace
}  // namespace actor_learner
