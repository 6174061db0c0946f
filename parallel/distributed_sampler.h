#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sinew/groups/process_group.h"
#include "sinew/groups/store.h"

namespace sinew::parallel {

enum class Shuffle { kByEpoch, kNever };

/// What becomes of a data set that the ranks cannot divide evenly.
enum class Remainder {
  /// Ranks take some samples again, from the beginning, so that all have as many.
  kPad,
  /// Some samples are left out, so that all ranks have as many; others in each epoch when shuffled.
  kDrop,
  /// Each sample is taken once, and some ranks have one less: for evaluation, and join().
  kUneven,
};

struct DistributedSamplerOptions {
  Shuffle shuffle = Shuffle::kByEpoch;
  Remainder remainder = Remainder::kPad;
  /// The same on all ranks.
  std::uint64_t seed = 0;
};

/// Gives each rank its part of a data set, for LibTorch's data loaders. The order of an epoch is
/// one permutation of the whole set, by seed and epoch alone, of which rank r of n takes places r,
/// r + n, r + 2n, ... So together the ranks take each sample once, but for the Remainder.
///
///     sinew::parallel::DistributedSampler sampler(*dataset.size(), group);
///     auto loader = torch::data::make_data_loader(dataset, sampler, batch_size);
///     for (int epoch = 0; epoch < epochs; ++epoch) {
///       sampler.set_epoch(epoch);
///       for (auto& batch : *loader) train(batch);
///     }
///
/// A data loader has a copy of its sampler; copies share the epoch. Not thread-safe, as LibTorch's.
///
/// Ranks that begin their n-th epoch with another size, seed, epoch or other options would take
/// samples twice, and leave others out. So the first one says in the group's store how it begins,
/// and those that begin otherwise throw RpcError kFailedPrecondition from reset(), which data
/// loaders call when they begin. No rank waits for another one. All ranks make the samplers of a
/// group in the same order.
class DistributedSampler final : public torch::data::samplers::Sampler<> {
 public:
  DistributedSampler(std::size_t size, const ProcessGroup& group,
                     const DistributedSamplerOptions& options = {});
  /// Compares nothing. Throws RpcError kInvalidArgument unless 0 <= rank < ranks.
  DistributedSampler(std::size_t size, int ranks, int rank,
                     const DistributedSamplerOptions& options = {});

  /// The epoch that starts at the next reset(), which data loaders do when they begin. Without it
  /// all epochs have the same order.
  void set_epoch(std::uint64_t epoch);
  std::uint64_t epoch() const;
  /// How many samples this rank has in each epoch.
  std::size_t size() const;

  void reset(torch::optional<std::size_t> new_size = torch::nullopt) override;
  torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  /// The epoch, and how far in it this is.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  /// What copies share.
  struct Shared {
    std::uint64_t epoch = 0;
    /// How often reset() was called.
    std::uint64_t begun = 0;
    /// Where ranks say how they begin; unset: nowhere.
    std::optional<Store> store;
    std::string key;
  };

  void begin_epoch();
  void compare_with_others();

  std::size_t set_size_;
  const std::size_t ranks_;
  const std::size_t rank_;
  const DistributedSamplerOptions options_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  // This rank's samples in the running epoch, and the next of them.
  std::vector<std::size_t> samples_;
  std::size_t next_ = 0;
};

}  // namespace sinew::parallel
