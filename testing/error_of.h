#pragma once

#include <functional>

#include "sinew/rpc/base/error.h"

namespace sinew::testing {

/// The RpcError that `call` throws. Throws Failure if it throws nothing, or something else.
///
///     EXPECT_EQ(error_of([&] { learner.call<&app::mean>(x); }).code(), ErrorCode::kUnavailable);
RpcError error_of(const std::function<void()>& call);

}  // namespace sinew::testing
