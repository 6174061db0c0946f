#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"

namespace sinew::parallel::internal {

/// What a rank says at the end of a pass.
struct PassVote {
  enum class Kind {
    /// Its pass has gone well so far.
    kKeep,
    /// Its pass has failed.
    kFailed,
    /// It has run out of inputs, and does what the others decide.
    kShadow,
  };
  Kind kind = Kind::kKeep;
  /// How many passes it has kept the gradients of.
  std::int64_t kept = 0;
};

/// What all ranks have said. Pure. Ranks exchange their words by summing vectors of integers, of
/// which each rank fills its own part.
class PassVotes {
 public:
  /// The vector of one rank. `used`: for each parameter, whether this rank's pass has a gradient.
  static at::Tensor words(int rank, int size, const PassVote& vote, const std::vector<bool>& used);
  /// From the sum of all ranks' vectors.
  PassVotes(int size, const at::Tensor& sum);

  /// OK: the gradients count, on all ranks. kAborted when passes of some ranks have failed,
  /// kFailedPrecondition when ranks have kept the gradients of different passes.
  absl::Status verdict() const;
  bool used_anywhere(std::size_t parameter) const { return used_.at(parameter) > 0; }
  /// Ranks that have inputs.
  int active() const;

 private:
  std::vector<PassVote> votes_;
  std::vector<std::int64_t> used_;
};

}  // namespace sinew::parallel::internal
