#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sinew/autograd/context.h"
#include "sinew/optim/distributed_optimizer.h"
#include "sinew/optim/internal/optim_manager.h"
#include "sinew/optim/internal/optimizer_parts.h"
#include "sinew/optim/internal/step_numbers.h"
#include "sinew/optim/partial_step.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::optim {

/// What is repeatable: its number is live.
struct PartialStep::Ticket {
  class Number {
   public:
    explicit Number(std::shared_ptr<internal::StepNumbers> of)
        : of_(std::move(of)), value_(of_->begin()) {}
    ~Number() { of_->end(value_); }
    Number(const Number&) = delete;
    Number& operator=(const Number&) = delete;
    std::uint64_t value() const { return value_; }

   private:
    const std::shared_ptr<internal::StepNumbers> of_;
    const std::uint64_t value_;
  };

  std::shared_ptr<DistributedOptimizer::Impl> optimizer;
  /// Shared by all repetitions, whatever their contexts.
  std::shared_ptr<const Number> number;
  autograd::ContextId context;
};

class DistributedOptimizer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  using Ticket = PartialStep::Ticket;

  /// `drawn` is of the optimizer: all handles on it, everywhere, have the same.
  Impl(Worker own, internal::BoundParts bound, std::size_t group_count, std::uint64_t drawn)
      : worker(std::move(own)),
        parts(std::move(bound.parts)),
        binding(bound.binding),
        groups(group_count),
        identity(drawn),
        numbers(
            internal::OptimManager::of(*WorkerAccess::services(worker))->step_numbers().of(drawn)),
        first_context_(binding == internal::Binding() ? 0 : internal::next_context_serial(worker)) {
    for (const internal::OptimizerPart& part : parts) owners.push_back(part.owner);
  }

  /// All owners know all groups. Throws kInvalidArgument for one that is none.
  const std::vector<internal::OptimizerPart>& parts_with(std::size_t group) const;
  std::shared_ptr<const Ticket> begin_step(const autograd::ContextId& context);
  /// A report in which nothing has been applied.
  StepReport nothing_applied() const;
  struct Sent;
  Sent send_step(const std::shared_ptr<const Ticket>& ticket, StepReport so_far,
                 const CallOptions& options);

  /// Also of a step that was begun with another handle on the optimizer.
  StepReport repeat(const PartialStep& step, const autograd::ContextId& context,
                    const CallOptions& options);

  // Constant.
  const Worker worker;
  const std::vector<internal::OptimizerPart> parts;
  const internal::Binding binding;
  const std::size_t groups;
  const std::uint64_t identity;
  const std::shared_ptr<internal::StepNumbers> numbers;
  std::vector<WorkerInfo> owners;

  /// Of an owner that had nothing to step.
  std::atomic<bool> has_warned{false};

 private:
  struct Gathering;

  void check_context(const autograd::ContextId& context) const;

  // This worker's contexts before it are of parameters as they were.
  const std::uint64_t first_context_;
};

}  // namespace sinew::optim
