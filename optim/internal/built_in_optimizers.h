#pragma once

#include <vector>

#include "sinew/rpc/calls/extension.h"

namespace sinew::internal {

/// What each worker serves of the optimizers that come with Sinew: as SINEW_OPTIMIZER has it for
/// those of users.
std::vector<Extension::Method> built_in_optimizer_methods();

}  // namespace sinew::internal
