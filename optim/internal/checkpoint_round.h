#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sinew/optim/checkpoint.h"
#include "sinew/optim/internal/checkpoint_messages.h"
#include "sinew/optim/internal/optimizer_parts.h"
#include "sinew/rpc/call_options.h"
#include "sinew/rpc/worker.h"

namespace sinew::internal {

/// The checkpoints that are whole: those of which every owner has its part, rising.
std::vector<CheckpointId> whole_checkpoints(const std::vector<CheckpointParts>& owners);

/// What a trainer does with the owners of an optimizer to save it, or to load. A save() has a
/// number that no other one has: the owner whose name is the first gives them. All owners have
/// written and read again what they have before one forgets anything; all have checked what they
/// have before one changes anything.
class CheckpointRound {
 public:
  /// The arguments outlive it.
  CheckpointRound(const Worker& worker, const std::vector<OptimizerPart>& parts,
                  const std::string& folder, const CallOptions& options)
      : worker_(worker), parts_(parts), folder_(folder), options_(options) {}

  /// Returns when all owners have a copy of what they save; done when it is written.
  Future<optim::Checkpoint> save(const optim::SaveOptions& how) const;
  /// The last one that is whole, or the one of this number.
  optim::Checkpoint load(std::optional<std::uint64_t> number) const;

 private:
  std::vector<CheckpointParts> ask() const;
  std::uint64_t next_number(const std::vector<CheckpointParts>& owners) const;
  /// Nothing: its data are damaged, or not there any more.
  std::optional<optim::Checkpoint> try_load(const CheckpointId& id, std::string& why_not) const;
  [[noreturn]] void throw_none(const std::vector<CheckpointParts>& owners,
                               std::optional<std::uint64_t> number,
                               const std::vector<std::string>& damaged) const;

  const Worker& worker_;
  const std::vector<OptimizerPart>& parts_;
  const std::string& folder_;
  const CallOptions& options_;
};

}  // namespace sinew::internal
