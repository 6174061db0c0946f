#include "sinew/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"

namespace sinew::optim {
namespace {

void check(bool is_right, const char* what) {
  if (is_right) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrCat("this learning-rate schedule makes no sense: ", what));
}

void check_gamma(double gamma) {
  check(std::isfinite(gamma) && gamma > 0, "gamma must be finite and more than 0");
}

}  // namespace

LrSchedule step_lr(std::int64_t step_size, double gamma) {
  check(step_size > 0, "step_size must be at least 1");
  check_gamma(gamma);
  return [step_size, gamma](std::int64_t step) {
    return std::pow(gamma, static_cast<double>(step / step_size));
  };
}

LrSchedule multi_step_lr(std::vector<std::int64_t> milestones, double gamma) {
  check(std::is_sorted(milestones.begin(), milestones.end()), "milestones must rise");
  check_gamma(gamma);
  return [milestones = std::move(milestones), gamma](std::int64_t step) {
    const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step);
    return std::pow(gamma, static_cast<double>(passed - milestones.begin()));
  };
}

LrSchedule exponential_lr(double gamma) {
  check_gamma(gamma);
  return [gamma](std::int64_t step) { return std::pow(gamma, static_cast<double>(step)); };
}

LrSchedule cosine_annealing_lr(std::int64_t t_max, double min_factor) {
  check(t_max > 0, "t_max must be at least 1");
  check(min_factor >= 0 && min_factor <= 1, "min_factor must be from 0 to 1");
  return [t_max, min_factor](std::int64_t step) {
    const double part = static_cast<double>(std::min(step, t_max)) / static_cast<double>(t_max);
    return min_factor + (1 - min_factor) * (1 + std::cos(M_PI * part)) / 2;
  };
}

LrSchedule linear_lr(double start_factor, double end_factor, std::int64_t total_steps) {
  check(start_factor > 0 && start_factor <= 1, "start_factor must be more than 0 and at most 1");
  check(end_factor >= 0 && end_factor <= 1, "end_factor must be from 0 to 1");
  check(total_steps > 0, "the number of steps must be at least 1");
  return [start_factor, end_factor, total_steps](std::int64_t step) {
    const double part =
        static_cast<double>(std::min(step, total_steps)) / static_cast<double>(total_steps);
    return start_factor + (end_factor - start_factor) * part;
  };
}

LrSchedule warm_up(std::int64_t steps, LrSchedule then, double start_factor) {
  check(then != nullptr, "there must be a schedule after the warm-up");
  return [steps, then = std::move(then), rise = linear_lr(start_factor, 1, steps)](
             std::int64_t step) { return step < steps ? rise(step) : then(step - steps); };
}

}  // namespace sinew::optim
