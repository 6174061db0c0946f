#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace sinew::optim {

/// How the learning rate goes: the share of the initial rate that holds in a step (or an epoch,
/// whatever the program counts), from 0 on. Pure: it is called with any step in any order. Those
/// below are PyTorch's torch.optim.lr_scheduler of the same names, as functions of the step. They
/// throw RpcError kInvalidArgument for values that make no sense.
using LrSchedule = std::function<double(std::int64_t step)>;

/// Times `gamma` every `step_size` steps.
LrSchedule step_lr(std::int64_t step_size, double gamma = 0.1);
/// Times `gamma` at each of these steps, which rise.
LrSchedule multi_step_lr(std::vector<std::int64_t> milestones, double gamma = 0.1);
/// Times `gamma` every step.
LrSchedule exponential_lr(double gamma);
/// Down along half a cosine, from 1 to `min_factor` in step `t_max`, where it stays ("SGDR",
/// Loshchilov and Hutter, 2016, without restarts).
LrSchedule cosine_annealing_lr(std::int64_t t_max, double min_factor = 0);
/// In a line from `start_factor` (more than 0, at most 1) to `end_factor` in step `total_steps`,
/// where it stays.
LrSchedule linear_lr(double start_factor, double end_factor, std::int64_t total_steps);
/// In a line from `start_factor` to 1 in `steps` steps; from there on as `then` from its step 0.
LrSchedule warm_up(std::int64_t steps, LrSchedule then, double start_factor = 0.1);

}  // namespace sinew::optim
