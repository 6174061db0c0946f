#include "sinew/optim/lr_scheduler.h"

#include <utility>

#include "sinew/rpc/base/error.h"

namespace sinew::optim {

LrScheduler::LrScheduler(DistributedOptimizer optimizer, LrSchedule schedule, std::int64_t step,
                         const CallOptions& options)
    : optimizer_(std::move(optimizer)), schedule_(std::move(schedule)), step_(step) {
  if (schedule_ == nullptr || step_ < 0) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   schedule_ == nullptr ? "the learning-rate schedule is empty"
                                        : "a learning-rate scheduler begins at step 0 or later");
  }
  initial_ = optimizer_.initial_learning_rates(options);
  set(rates_at(step_), options);
}

void LrScheduler::step(const CallOptions& options) {
  set(rates_at(step_ + 1), options);
  ++step_;
}

std::vector<double> LrScheduler::learning_rates() const { return rates_at(step_); }

std::vector<double> LrScheduler::rates_at(std::int64_t step) const {
  std::vector<double> rates;
  const double factor = schedule_(step);
  for (const double initial : initial_) rates.push_back(initial * factor);
  return rates;
}

void LrScheduler::set(const std::vector<double>& rates, const CallOptions& options) {
  if (rates == told_) return;
  told_.clear();
  for (std::size_t group = 0; group < rates.size(); ++group) {
    optimizer_.set_learning_rate(group, rates[group], options);
  }
  told_ = rates;
}

}  // namespace sinew::optim
