#pragma once

#include <ATen/ATen.h>

#include "sinew/sinew.h"

// A method whose argument and result are tensors of any size.
namespace testapp {

inline at::Tensor negated(const at::Tensor& tensor) { return -tensor; }

}  // namespace testapp

SINEW_METHOD(testapp::negated);
