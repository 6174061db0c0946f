#pragma once

#include <cstdint>

#include "sinew/rpc/wire/codec.h"

namespace sinew::optim {

/// Where a GradScaler is, for checkpoints.
struct GradScalerState {
  double scale = 1;
  /// Steps in a row without infinities since the scale has changed.
  std::int64_t growth_tracker = 0;
};

}  // namespace sinew::optim

SINEW_STRUCT(sinew::optim::GradScalerState, scale, growth_tracker);
