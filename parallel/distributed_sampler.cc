#include "sinew/parallel/distributed_sampler.h"

#include <torch/serialize/archive.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "sinew/parallel/internal/permutation.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel {

DistributedSampler::DistributedSampler(std::size_t size, const ProcessGroup& group,
                                       const DistributedSamplerOptions& options)
    : DistributedSampler(size, group.size(), group.rank(), options) {}

DistributedSampler::DistributedSampler(std::size_t size, int ranks, int rank,
                                       const DistributedSamplerOptions& options)
    : set_size_(size),
      ranks_(static_cast<std::size_t>(std::max(ranks, 1))),
      rank_(static_cast<std::size_t>(std::max(rank, 0))),
      options_(options),
      epoch_(std::make_shared<std::uint64_t>(0)) {
  if (rank < 0 || rank >= ranks) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("a DistributedSampler is for rank %d of %d, which there is not",
                                   rank, ranks));
  }
  begin_epoch();
}

void DistributedSampler::set_epoch(std::uint64_t epoch) { *epoch_ = epoch; }
std::uint64_t DistributedSampler::epoch() const { return *epoch_; }

std::size_t DistributedSampler::size() const {
  switch (options_.remainder) {
    case Remainder::kPad:
      return (set_size_ + ranks_ - 1) / ranks_;
    case Remainder::kDrop:
      return set_size_ / ranks_;
    case Remainder::kUneven:
      return set_size_ / ranks_ + (rank_ < set_size_ % ranks_ ? 1 : 0);
  }
  return 0;
}

void DistributedSampler::begin_epoch() {
  std::vector<std::size_t> order;
  if (options_.shuffle == Shuffle::kByEpoch) {
    order = internal::permutation(set_size_, options_.seed, *epoch_);
  }
  samples_.resize(size());
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    // Only padding goes beyond the end: it goes on at the beginning, more than once where there
    // are more ranks than samples.
    const std::size_t place = (i * ranks_ + rank_) % set_size_;
    samples_[i] = order.empty() ? place : order[place];
  }
  next_ = 0;
}

void DistributedSampler::reset(torch::optional<std::size_t> new_size) {
  if (new_size.has_value()) set_size_ = *new_size;
  begin_epoch();
}

torch::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  if (next_ == samples_.size()) return torch::nullopt;
  const std::size_t end = next_ + std::min(batch_size, samples_.size() - next_);
  std::vector<std::size_t> batch(samples_.begin() + static_cast<std::ptrdiff_t>(next_),
                                 samples_.begin() + static_cast<std::ptrdiff_t>(end));
  next_ = end;
  return batch;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", c10::IValue(static_cast<std::int64_t>(*epoch_)));
  archive.write("next", c10::IValue(static_cast<std::int64_t>(next_)));
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue epoch;
  c10::IValue next;
  archive.read("epoch", epoch);
  archive.read("next", next);
  const auto place = static_cast<std::size_t>(next.toInt());
  if (place > size()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("the sampler that was saved had taken %d samples, but this rank "
                                   "has %d in an epoch",
                                   place, size()));
  }
  *epoch_ = static_cast<std::uint64_t>(epoch.toInt());
  begin_epoch();
  next_ = place;
}

}  // namespace sinew::parallel
