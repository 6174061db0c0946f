// How data sets are divided: the sampler, the partitioner, and the order that both use.

#include <torch/data/dataloader.h>
#include <torch/data/datasets/tensor.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/parallel/data_partitioner.h"
#include "sinew/parallel/distributed_sampler.h"
#include "sinew/parallel/internal/permutation.h"
#include "sinew/rpc/base/error.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::parallel::DataPartitioner;
using sinew::parallel::DistributedSampler;
using sinew::parallel::DistributedSamplerOptions;
using sinew::parallel::Remainder;
using sinew::parallel::Shuffle;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

using Indexes = std::vector<std::size_t>;

ErrorCode code_of(const std::function<void()>& call, std::string* text = nullptr) {
  try {
    call();
  } catch (const RpcError& error) {
    if (text != nullptr) *text = error.message();
    return error.code();
  }
  return ErrorCode::kOk;
}

Indexes take_all(DistributedSampler& sampler, std::size_t batch = 7) {
  Indexes all;
  while (const auto some = sampler.next(batch)) {
    EXPECT_LE(some->size(), batch);
    all.insert(all.end(), some->begin(), some->end());
  }
  return all;
}

std::map<std::size_t, int> counts_of(const std::vector<Indexes>& parts) {
  std::map<std::size_t, int> counts;
  for (const Indexes& part : parts) {
    for (const std::size_t index : part) ++counts[index];
  }
  return counts;
}

// ---- The order.

TEST(Permutation, IsTheSameEverywhere) {
  // std::mt19937_64 and std::seed_seq are fixed by the standard, so these numbers are too: they
  // were computed by its text in another language.
  const Indexes order = sinew::parallel::internal::permutation(8, 1, 2);
  EXPECT_THAT(order, ElementsAre(0, 2, 3, 1, 5, 7, 4, 6));
  constexpr std::uint64_t kHigh = std::uint64_t{1} << 32;
  EXPECT_THAT(sinew::parallel::internal::permutation(8, 1 + 5 * kHigh, 2 + 7 * kHigh),
              ElementsAre(0, 7, 1, 2, 3, 4, 6, 5));
  EXPECT_EQ(order, sinew::parallel::internal::permutation(8, 1, 2));
  EXPECT_NE(order, sinew::parallel::internal::permutation(8, 1, 3));
  EXPECT_NE(order, sinew::parallel::internal::permutation(8, 2, 2));
  Indexes sorted = order;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_THAT(sorted, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_TRUE(sinew::parallel::internal::permutation(0, 1, 1).empty());
}

TEST(Permutation, IsFair) {
  // Each of 5 elements comes first in a fifth of the rounds: 4000 +- 57 (one sigma) of 20000.
  std::vector<int> firsts(5);
  for (std::uint64_t round = 0; round < 20000; ++round) {
    ++firsts[sinew::parallel::internal::permutation(5, 3, round).front()];
  }
  for (const int count : firsts) EXPECT_NEAR(count, 4000, 300);
}

// ---- The sampler.

TEST(DistributedSampler, NoSampleIsLost) {
  std::mt19937 random(20240611);
  for (int round = 0; round < 300; ++round) {
    const std::size_t size = random() % 50;
    const int ranks = 1 + static_cast<int>(random() % 8);
    DistributedSamplerOptions options;
    options.seed = random();
    options.shuffle = random() % 2 == 0 ? Shuffle::kByEpoch : Shuffle::kNever;
    options.remainder = static_cast<Remainder>(random() % 3);
    SCOPED_TRACE(::testing::Message() << size << " samples, " << ranks << " ranks, remainder "
                                      << static_cast<int>(options.remainder));
    std::vector<Indexes> parts;
    for (int rank = 0; rank < ranks; ++rank) {
      DistributedSampler sampler(size, ranks, rank, options);
      sampler.set_epoch(static_cast<std::uint64_t>(round));
      sampler.reset();
      parts.push_back(take_all(sampler, 1 + random() % 9));
      ASSERT_EQ(parts.back().size(), sampler.size());
    }
    const auto counts = counts_of(parts);
    std::size_t taken = 0;
    int most = 0;
    for (const auto& [index, count] : counts) {
      ASSERT_LT(index, size);
      taken += static_cast<std::size_t>(count);
      most = std::max(most, count);
    }
    const std::size_t n = static_cast<std::size_t>(ranks);
    switch (options.remainder) {
      case Remainder::kPad:
        ASSERT_EQ(counts.size(), size);
        ASSERT_EQ(taken, (size + n - 1) / n * n);
        break;
      case Remainder::kDrop:
        ASSERT_EQ(taken, size / n * n);
        ASSERT_LE(most, 1);
        break;
      case Remainder::kUneven:
        ASSERT_EQ(counts.size(), size);
        ASSERT_EQ(taken, size);
        break;
    }
    if (options.remainder == Remainder::kUneven) continue;
    for (const Indexes& part : parts) ASSERT_EQ(part.size(), parts.front().size());
  }
}

TEST(DistributedSampler, ShufflesByEpochAndSeed) {
  DistributedSampler sampler(100, 2, 0);
  const Indexes first = take_all(sampler);
  sampler.reset();
  EXPECT_EQ(take_all(sampler), first);
  sampler.set_epoch(1);
  sampler.reset();
  EXPECT_NE(take_all(sampler), first);
  sampler.set_epoch(0);
  sampler.reset();
  EXPECT_EQ(take_all(sampler), first);
  DistributedSamplerOptions options;
  options.seed = 5;
  DistributedSampler other(100, 2, 0, options);
  EXPECT_NE(take_all(other), first);
  options.shuffle = Shuffle::kNever;
  DistributedSampler ordered(5, 2, 1, options);
  EXPECT_THAT(take_all(ordered), ElementsAre(1, 3, 0));
}

TEST(DistributedSampler, DropsOthersInEachEpoch) {
  std::set<std::size_t> seen;
  DistributedSamplerOptions options;
  options.remainder = Remainder::kDrop;
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    for (int rank = 0; rank < 3; ++rank) {
      DistributedSampler sampler(5, 3, rank, options);
      sampler.set_epoch(epoch);
      sampler.reset();
      for (const std::size_t index : take_all(sampler)) seen.insert(index);
    }
  }
  EXPECT_EQ(seen.size(), 5U);
}

TEST(DistributedSampler, FeedsADataLoader) {
  const auto data = torch::data::datasets::TensorDataset(at::arange(10, at::kLong));
  DistributedSamplerOptions options;
  options.shuffle = Shuffle::kNever;
  DistributedSampler sampler(10, 2, 1, options);
  // The loader has a copy.
  auto loader = torch::data::make_data_loader(data, sampler, /*batch_size=*/2);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::int64_t> values;
    for (const auto& batch : *loader) {
      for (const auto& example : batch) values.push_back(example.data.item<std::int64_t>());
    }
    EXPECT_THAT(values, ElementsAre(1, 3, 5, 7, 9));
  }
  DistributedSampler shuffled(10, 2, 1);
  auto shuffling = torch::data::make_data_loader(data, shuffled, /*batch_size=*/5);
  const auto epoch_values = [&](std::uint64_t epoch) {
    shuffled.set_epoch(epoch);
    std::vector<std::int64_t> values;
    for (const auto& batch : *shuffling) {
      for (const auto& example : batch) values.push_back(example.data.item<std::int64_t>());
    }
    return values;
  };
  EXPECT_NE(epoch_values(0), epoch_values(1));
  EXPECT_EQ(epoch_values(1), epoch_values(1));
}

TEST(DistributedSampler, GoesOnWhereItWasSaved) {
  DistributedSampler sampler(40, 4, 2);
  sampler.set_epoch(3);
  sampler.reset();
  sampler.next(6);
  std::stringstream stream;
  {
    torch::serialize::OutputArchive archive;
    sampler.save(archive);
    archive.save_to(stream);
  }
  const Indexes rest = take_all(sampler);
  DistributedSampler loaded(40, 4, 2);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  loaded.load(archive);
  EXPECT_EQ(loaded.epoch(), 3U);
  EXPECT_EQ(take_all(loaded), rest);
  EXPECT_EQ(rest.size(), 4U);
  DistributedSampler small(8, 4, 2);
  stream.clear();
  stream.seekg(0);
  torch::serialize::InputArchive again;
  again.load_from(stream);
  EXPECT_EQ(code_of([&] { small.load(again); }), ErrorCode::kInvalidArgument);
}

TEST(DistributedSampler, TakesANewSize) {
  DistributedSampler sampler(4, 2, 0);
  sampler.reset(100);
  EXPECT_EQ(take_all(sampler).size(), 50U);
}

TEST(DistributedSampler, RefusesRanksThatAreNone) {
  for (const auto& [ranks, rank] : {std::pair(2, 2), {2, -1}, {0, 0}, {-3, 0}}) {
    EXPECT_EQ(code_of([&, ranks = ranks, rank = rank] { DistributedSampler(5, ranks, rank); }),
              ErrorCode::kInvalidArgument);
  }
}

// ---- The partitioner.

TEST(DataPartitioner, PartsAreDisjointAndOfTheirSizes) {
  std::mt19937 random(42);
  for (int round = 0; round < 300; ++round) {
    const std::size_t size = random() % 200;
    const std::size_t parts = 1 + random() % 7;
    std::vector<double> fractions;
    double sum = 0;
    for (std::size_t i = 0; i < parts; ++i) {
      fractions.push_back(static_cast<double>(random() % 1000));
      sum += fractions.back();
    }
    if (sum == 0) continue;
    for (double& fraction : fractions) fraction /= sum;
    const DataPartitioner partitioner(size, fractions, random());
    ASSERT_EQ(partitioner.parts(), parts);
    std::vector<Indexes> all;
    for (std::size_t i = 0; i < parts; ++i) {
      all.push_back(partitioner.part(i));
      ASSERT_LT(std::abs(static_cast<double>(all.back().size()) -
                         fractions[i] * static_cast<double>(size)),
                1 + 1e-6);
    }
    const auto counts = counts_of(all);
    ASSERT_EQ(counts.size(), size) << "a sample is lost";
    for (const auto& [index, count] : counts) ASSERT_EQ(count, 1) << index;
  }
}

TEST(DataPartitioner, EqualPartsLoseNothing) {
  for (int ranks = 1; ranks < 20; ++ranks) {
    const DataPartitioner partitioner(
        60000, std::vector<double>(static_cast<std::size_t>(ranks), 1.0 / ranks), 1234);
    std::size_t total = 0;
    for (std::size_t i = 0; i < partitioner.parts(); ++i) total += partitioner.part(i).size();
    EXPECT_EQ(total, 60000U) << ranks;
  }
}

TEST(DataPartitioner, TheSameForTheSameSeed) {
  const std::vector<double> fractions = {0.7, 0.2, 0.1};
  const DataPartitioner a(100, fractions, 1234);
  const DataPartitioner b(100, fractions, 1234);
  const DataPartitioner c(100, fractions, 1235);
  EXPECT_EQ(a.part(1), b.part(1));
  EXPECT_NE(a.part(1), c.part(1));
  EXPECT_EQ(a.part(0).size(), 70U);
  EXPECT_EQ(a.part(2).size(), 10U);
}

TEST(DataPartitioner, MistakesAreNamed) {
  std::string text;
  const auto make = [&](const std::vector<double>& fractions) {
    return code_of([&] { DataPartitioner(10, fractions, 1); }, &text);
  };
  EXPECT_EQ(make({0.5, -0.1}), ErrorCode::kInvalidArgument);
  EXPECT_THAT(text, HasSubstr("fraction 1 of a DataPartitioner is -0.1"));
  EXPECT_EQ(make({std::nan("")}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(make({0.7, 0.7}), ErrorCode::kInvalidArgument);
  EXPECT_THAT(text, HasSubstr("make 1.4"));
  EXPECT_EQ(make({}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { DataPartitioner(10, {1.0}, 1).part(1); }), ErrorCode::kOutOfRange);
}

}  // namespace
