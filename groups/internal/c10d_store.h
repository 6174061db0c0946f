#pragma once

#include "sinew/groups/store.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace sinew::internal {

/// A store as LibTorch's backends take it.
c10::intrusive_ptr<c10d::Store> make_c10d_store(const Store& store);

}  // namespace sinew::internal
