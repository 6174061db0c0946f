#include "sinew/parallel/distributed_sampler.h"

#include <torch/serialize/archive.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/groups/internal/group_engine.h"
#include "sinew/parallel/internal/permutation.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel {
namespace {

constexpr std::chrono::seconds kStoreTime{5};

}  // namespace

DistributedSampler::DistributedSampler(std::size_t size, const ProcessGroup& group,
                                       const DistributedSamplerOptions& options)
    : DistributedSampler(size, group.size(), group.rank(), options) {
  auto& engine = *ProcessGroupAccess::engine(group);
  const int number = engine.next_object();
  if (ranks_ == 1 || !engine.setup().store.valid()) return;
  shared_->store = engine.setup().store;
  shared_->key = absl::StrCat("sampler/", number);
}

DistributedSampler::DistributedSampler(std::size_t size, int ranks, int rank,
                                       const DistributedSamplerOptions& options)
    : set_size_(size),
      ranks_(static_cast<std::size_t>(std::max(ranks, 1))),
      rank_(static_cast<std::size_t>(std::max(rank, 0))),
      options_(options) {
  if (rank < 0 || rank >= ranks) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("a DistributedSampler is for rank %d of %d, which there is not",
                                   rank, ranks));
  }
  begin_epoch();
}

void DistributedSampler::set_epoch(std::uint64_t epoch) { shared_->epoch = epoch; }
std::uint64_t DistributedSampler::epoch() const { return shared_->epoch; }

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
    order = internal::permutation(set_size_, options_.seed, shared_->epoch);
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
  compare_with_others();
  begin_epoch();
}

// By the store: ranks with different numbers of samples begin at different times, and may be within
// collective operations meanwhile.
void DistributedSampler::compare_with_others() {
  const std::uint64_t number = ++shared_->begun;
  if (!shared_->store) return;
  const std::string own = absl::StrFormat(
      "%d samples, epoch %d, seed %d, %s, %s", set_size_, shared_->epoch, options_.seed,
      options_.shuffle == Shuffle::kByEpoch ? "shuffled" : "never shuffled",
      options_.remainder == Remainder::kPad    ? "kPad"
      : options_.remainder == Remainder::kDrop ? "kDrop"
                                               : "kUneven");
  std::string first;
  try {
    first = shared_->store->compare_set(absl::StrCat(shared_->key, "/", number), "",
                                        absl::StrCat("rank ", rank_, " with ", own), {kStoreTime});
  } catch (const RpcError&) {
    return;  // Out of reach, as when the group has failed, which its operations tell.
  }
  if (absl::EndsWith(first, absl::StrCat(" with ", own))) return;
  throw RpcError(
      ErrorCode::kFailedPrecondition,
      absl::StrFormat("ranks begin epoch number %d of a DistributedSampler in different ways, and "
                      "would take samples twice or not at all: %s, rank %d with %s. Give all the "
                      "same options, and call set_epoch() alike",
                      number, sinew::internal::printable(first), rank_, own));
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
  archive.write("epoch", c10::IValue(static_cast<std::int64_t>(shared_->epoch)));
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
  shared_->epoch = static_cast<std::uint64_t>(epoch.toInt());
  begin_epoch();
  next_ = place;
}

}  // namespace sinew::parallel
