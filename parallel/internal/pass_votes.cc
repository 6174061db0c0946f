#include "sinew/parallel/internal/pass_votes.h"

#include <algorithm>
#include <string>

#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel::internal {
namespace {

constexpr std::size_t kWordsOfRank = 8;
constexpr std::size_t kMostReasonBytes = std::size_t{4} << 10;

std::string text_of(const PassVote& vote) {
  const std::string calls =
      vote.first_call == vote.last_call
          ? absl::StrFormat("call %d", vote.last_call)
          : absl::StrFormat("calls %d to %d", vote.first_call, vote.last_call);
  return absl::StrFormat("%s of forward() of data-parallel module %d", calls, vote.module);
}

bool is_failure(PassVote::Kind kind) {
  return kind == PassVote::Kind::kFailed || kind == PassVote::Kind::kThrew ||
         kind == PassVote::Kind::kIncomplete;
}

bool is_same_pass(const PassVote& a, const PassVote& b) {
  return a.module == b.module && a.first_call == b.first_call && a.last_call == b.last_call;
}

}  // namespace

at::Tensor PassVotes::words(int rank, int size, const PassVote& vote,
                            const std::vector<bool>& used) {
  const std::size_t own = static_cast<std::size_t>(rank) * kWordsOfRank;
  const std::size_t all = static_cast<std::size_t>(size) * kWordsOfRank;
  at::Tensor words = at::zeros({static_cast<std::int64_t>(all + used.size())}, at::kLong);
  std::int64_t* word = words.data_ptr<std::int64_t>();
  word[own] = static_cast<std::int64_t>(vote.kind);
  word[own + 1] = vote.kept;
  word[own + 2] = vote.module;
  word[own + 3] = vote.first_call;
  word[own + 4] = vote.last_call;
  word[own + 5] = vote.doubts ? 1 : 0;
  word[own + 6] = vote.calls;
  word[own + 7] = vote.sample;
  for (std::size_t i = 0; i < used.size(); ++i) word[all + i] = used[i] ? 1 : 0;
  return words;
}

PassVotes::PassVotes(int size, const at::Tensor& sum) {
  const std::int64_t* word = sum.data_ptr<std::int64_t>();
  const std::int64_t* const end = word + sum.numel();
  for (int rank = 0; rank < size; ++rank, word += kWordsOfRank) {
    votes_.push_back({static_cast<PassVote::Kind>(word[0]), word[1], word[2], word[3], word[4],
                      word[5] != 0, word[6], word[7]});
  }
  used_.assign(word, end);
}

absl::Status PassVotes::verdict() const {
  std::vector<int> failed;
  for (std::size_t rank = 0; rank < votes_.size(); ++rank) {
    if (is_failure(votes_[rank].kind)) failed.push_back(static_cast<int>(rank));
  }
  const PassVote* active = nullptr;
  for (std::size_t rank = 0; rank < votes_.size(); ++rank) {
    if (votes_[rank].kind != PassVote::Kind::kKeep) continue;
    if (active == nullptr) active = &votes_[rank];
    if (is_same_pass(votes_[rank], *active)) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "ranks reduce gradients of different passes together: rank %d those of %s, rank %d those "
        "of %s. All ranks call forward() and backward() of the modules of a group in one order, "
        "from one thread, and make the DistributedDataParallel anew when a pass has failed on some",
        active - votes_.data(), text_of(*active), rank, text_of(votes_[rank])));
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

bool PassVotes::says_why() const {
  return std::none_of(votes_.begin(), votes_.end(),
                      [](const PassVote& vote) { return vote.kind == PassVote::Kind::kThrew; });
}

absl::Status PassVotes::failure(const std::vector<std::string>& reasons) const {
  std::vector<std::string> lines;
  bool only_incomplete = true;
  for (std::size_t rank = 0; rank < votes_.size(); ++rank) {
    if (!is_failure(votes_[rank].kind)) continue;
    only_incomplete = only_incomplete && votes_[rank].kind == PassVote::Kind::kIncomplete;
    lines.push_back(absl::StrFormat("on rank %d: %s", rank,
                                    sinew::internal::printable(reasons[rank], kMostReasonBytes)));
  }
  return {only_incomplete ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kAborted,
          absl::StrCat("the gradients of this pass are not kept on any rank, since it failed ",
                       absl::StrJoin(lines, "; "))};
}

std::int64_t PassVotes::calls() const {
  std::int64_t most = 0;
  for (const PassVote& vote : votes_) most = std::max(most, vote.calls);
  return most;
}

bool PassVotes::doubts() const {
  const PassVote* active = nullptr;
  for (const PassVote& vote : votes_) {
    if (vote.doubts) return true;
    if (vote.kind != PassVote::Kind::kKeep) continue;
    if (active == nullptr) active = &vote;
    if (vote.sample != active->sample) return true;
  }
  return false;
}

int PassVotes::active() const {
  return static_cast<int>(std::count_if(votes_.begin(), votes_.end(), [](const PassVote& vote) {
    return vote.kind != PassVote::Kind::kShadow;
  }));
}

}  // namespace sinew::parallel::internal
