#include "sinew/optim/partial_step.h"

#include <utility>

namespace sinew::optim {

PartialStep::PartialStep(ErrorInfo info, StepReport report, std::shared_ptr<const Ticket> ticket)
    : RpcError(std::move(info)),
      report_(std::make_shared<const StepReport>(std::move(report))),
      ticket_(std::move(ticket)) {}

std::vector<std::string> PartialStep::names_of(OwnerStep::Outcome outcome) const {
  std::vector<std::string> names;
  for (const OwnerStep& step : report_->owners) {
    if (step.outcome == outcome) names.push_back(step.owner.name);
  }
  return names;
}

std::vector<std::string> PartialStep::applied() const {
  return names_of(OwnerStep::Outcome::kApplied);
}
std::vector<std::string> PartialStep::not_applied() const {
  return names_of(OwnerStep::Outcome::kNotApplied);
}
std::vector<std::string> PartialStep::unknown() const {
  return names_of(OwnerStep::Outcome::kUnknown);
}

}  // namespace sinew::optim
