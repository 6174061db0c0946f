#pragma once

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"

/// A small network as the list of its weights: trainers and the server hold a copy each.
namespace batch_ps {

using Parameters = std::vector<at::Tensor>;

Parameters make_parameters(std::int64_t seed);
/// {count, 2} points to {count, arms}.
at::Tensor scores(const Parameters& parameters, const at::Tensor& points);

}  // namespace batch_ps
