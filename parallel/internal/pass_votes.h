#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"

namespace sinew::parallel::internal {

/// What a rank says at the end of a pass.
struct PassVote {
  enum class Kind {
    /// Its pass has gone well so far.
    kKeep,
    /// Its pass has failed, or it has left the step before the pass.
    kFailed,
    /// It has run out of inputs, and does what the others decide.
    kShadow,
    /// Its pass has thrown, and it says no more.
    kThrew,
    /// Its pass has left out parameters that must have a gradient.
    kIncomplete,
  };
  Kind kind = Kind::kKeep;
  /// How many passes it has kept the gradients of.
  std::int64_t kept = 0;
  /// Which module this is, as all ranks count them.
  std::int64_t module = 0;
  /// The calls of its forward() that gradients of this pass come from: the first and the last of
  /// those that are known. Count for kKeep alone.
  std::int64_t first_call = 0;
  std::int64_t last_call = 0;
  /// Something has happened by which parameters may have become others than those of other ranks.
  bool doubts = false;
  /// How often forward() has been called by the time of this pass; 0: it may have been called
  /// since.
  std::int64_t calls = 0;
  /// Of some of its parameters' values: see sample_of(). Counts for kKeep alone.
  std::int64_t sample = 0;
};

/// What all ranks have said. Pure. Ranks exchange their words by summing vectors of integers, of
/// which each rank fills its own part.
class PassVotes {
 public:
  /// The vector of one rank. `used`: for each parameter, whether this rank's pass has a gradient.
  static at::Tensor words(int rank, int size, const PassVote& vote, const std::vector<bool>& used);
  /// From the sum of all ranks' vectors.
  PassVotes(int size, const at::Tensor& sum);

  /// OK: the gradients count, on all ranks. kAborted when passes of some ranks have failed or are
  /// incomplete, kFailedPrecondition when ranks have kept the gradients of different passes, or are
  /// in different ones.
  absl::Status verdict() const;
  /// Whether those that have failed say why, behind the vote.
  bool says_why() const;
  bool has_failed() const { return verdict().code() == absl::StatusCode::kAborted; }
  /// Of a pass that has failed, by what each rank says of its own, empty: nothing. kAborted;
  /// kFailedPrecondition when passes were incomplete, and nothing else.
  absl::Status failure(const std::vector<std::string>& reasons) const;
  /// The most of any rank.
  std::int64_t calls() const;
  /// Whether any rank's parameters may be others, or are.
  bool doubts() const;
  const std::vector<PassVote>& votes() const { return votes_; }
  bool used_anywhere(std::size_t parameter) const { return used_.at(parameter) > 0; }
  /// Ranks that have inputs.
  int active() const;

 private:
  std::vector<PassVote> votes_;
  std::vector<std::int64_t> used_;
};

}  // namespace sinew::parallel::internal
