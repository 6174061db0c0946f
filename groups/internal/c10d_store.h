#pragma once

#include <functional>

#include "absl/status/status.h"
#include "sinew/groups/store.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace sinew::internal {

/// A store as LibTorch's backends take it. `health` (it may be null) is asked now and then while
/// keys are waited for: what it returns but OK ends the wait.
c10::intrusive_ptr<c10d::Store> make_c10d_store(const Store& store,
                                                std::function<absl::Status()> health);

}  // namespace sinew::internal
