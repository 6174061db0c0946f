#pragma once

#include "ATen/core/Tensor.h"

namespace examples {

/// `at::linear(input, weight, bias)`: the same values and gradients, but the gradient of `input` is
/// computed by itself, and those of `weight` and `bias` after it. In a pass across workers the
/// gradients that other workers wait for leave before the rest of a step has run (see
/// docs/autograd.md); here that is half of the work, which runs while the others go on. Without
/// other workers it is no slower and no faster. The split is that of Qi et al., "Zero Bubble
/// Pipeline Parallelism", 2023.
///
/// `input`: {.., in}. `weight`: {out, in}. `bias`: {out}, or undefined for none. Returns {.., out}.
/// Throws what at::linear throws. Thread-safe as at::linear is.
at::Tensor split_linear(const at::Tensor& input, const at::Tensor& weight,
                        const at::Tensor& bias = {});

}  // namespace examples
