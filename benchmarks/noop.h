#pragma once

#include <cstdint>

#include "sinew/sinew.h"

namespace bench {

/// The smallest call.
inline std::int64_t noop() { return 0; }

}  // namespace bench

SINEW_METHOD(bench::noop);
