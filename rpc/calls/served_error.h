#pragma once

#include <exception>

#include "sinew/rpc/base/error.h"

namespace sinew::internal {

/// How far a call had come that failed at its callee.
enum class ServedStage {
  /// Its method was not entered.
  kBeforeMethod,
  /// It was: what failed came out of the method, or became of its result.
  kMethod,
};

/// What the caller of a call is told of the error with which serving it failed: where it arose, and
/// whether the method may have run. Only a Rejected that comes out of the method itself says that
/// it did not; an error of a call which the method made never does.
ErrorInfo describe_served(const std::exception_ptr& error, ServedStage stage);

}  // namespace sinew::internal
