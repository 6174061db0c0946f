#include "sinew/parallel/internal/pass_votes.h"

#include <algorithm>

#include "ATen/ops/zeros.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace sinew::parallel::internal {
namespace {

constexpr std::size_t kWordsOfRank = 2;

}  // namespace

at::Tensor PassVotes::words(int rank, int size, const PassVote& vote,
                            const std::vector<bool>& used) {
  const std::size_t own = static_cast<std::size_t>(rank) * kWordsOfRank;
  const std::size_t all = static_cast<std::size_t>(size) * kWordsOfRank;
  at::Tensor words = at::zeros({static_cast<std::int64_t>(all + used.size())}, at::kLong);
  std::int64_t* word = words.data_ptr<std::int64_t>();
  word[own] = static_cast<std::int64_t>(vote.kind);
  word[own + 1] = vote.kept;
  for (std::size_t i = 0; i < used.size(); ++i) word[all + i] = used[i] ? 1 : 0;
  return words;
}

PassVotes::PassVotes(int size, const at::Tensor& sum) {
  const std::int64_t* word = sum.data_ptr<std::int64_t>();
  const std::int64_t* const end = word + sum.numel();
  for (int rank = 0; rank < size; ++rank, word += kWordsOfRank) {
    votes_.push_back({static_cast<PassVote::Kind>(word[0]), word[1]});
  }
  used_.assign(word, end);
}

absl::Status PassVotes::verdict() const {
  std::vector<int> failed;
  for (std::size_t rank = 0; rank < votes_.size(); ++rank) {
    if (votes_[rank].kind == PassVote::Kind::kFailed) failed.push_back(static_cast<int>(rank));
  }
  const auto other = std::find_if(votes_.begin(), votes_.end(), [this](const PassVote& vote) {
    return vote.kept != votes_.front().kept;
  });
  if (other != votes_.end()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "rank %d has kept the gradients of %d backward passes, rank 0 those of %d: a pass failed "
        "on "
        "one of them when the others had agreed on it, so their parameters may differ. Load a "
        "checkpoint on all ranks, and make the DistributedDataParallel anew",
        other - votes_.begin(), other->kept, votes_.front().kept));
  }
  if (!failed.empty()) {
    return absl::AbortedError(absl::StrFormat(
        "the gradients of this pass are not kept on any rank, since it failed on rank %s (see the "
        "error there)",
        absl::StrJoin(failed, ", ")));
  }
  return absl::OkStatus();
}

int PassVotes::active() const {
  return static_cast<int>(std::count_if(votes_.begin(), votes_.end(), [](const PassVote& vote) {
    return vote.kind != PassVote::Kind::kShadow;
  }));
}

}  // namespace sinew::parallel::internal
