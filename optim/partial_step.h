#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::optim {

/// What one owner made of a step.
struct OwnerStep {
  enum class Outcome {
    kApplied,
    /// Nothing changed there.
    kNotApplied,
    /// It may have been applied; or it failed half-way, which `error` says.
    kUnknown,
  };
  WorkerInfo owner;
  Outcome outcome = Outcome::kUnknown;
  /// Parameters that had a gradient in the context.
  std::uint64_t updated = 0;
  /// Counts the steps that the owner has applied, those of all optimizers: what order they had.
  std::uint64_t order = 0;
  /// Steps that are in what the owner has of the optimizer, with this one: those of all trainers,
  /// and after a load() those of the checkpoint. So whether a step is there still can be told
  /// later.
  std::uint64_t version = 0;
  /// Unless it was applied.
  std::optional<RpcError> error;
};

/// A step, as its owners answered; in the order of DistributedOptimizer::owners().
struct StepReport {
  std::vector<OwnerStep> owners;
};

/// A step was not applied by all owners. Code, peer and text are those of the first owner that
/// failed, and the text lists them all. DistributedOptimizer::repeat() can try it again as long as
/// this (or a copy) exists: where it was applied it is not applied twice.
class PartialStep : public RpcError {
 public:
  struct Ticket;
  PartialStep(ErrorInfo info, StepReport report, std::shared_ptr<const Ticket> ticket);

  const StepReport& report() const { return *report_; }
  /// Names of the owners that applied it, that did not, and that cannot say.
  std::vector<std::string> applied() const;
  std::vector<std::string> not_applied() const;
  std::vector<std::string> unknown() const;

  /// For DistributedOptimizer.
  const std::shared_ptr<const Ticket>& ticket() const { return ticket_; }

 private:
  std::vector<std::string> names_of(OwnerStep::Outcome outcome) const;

  std::shared_ptr<const StepReport> report_;
  std::shared_ptr<const Ticket> ticket_;
};

}  // namespace sinew::optim
