#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/tests/groups/truth_table.h"

namespace sinew::testing {

// The rows, by kind.

/// Outputs that share memory with each other, with themselves, and with inputs.
void add_shared_memory(std::vector<TruthRow>& rows);
/// MIN, MAX and the others of NaN, infinities and zeros.
void add_nan(std::vector<TruthRow>& rows);
void add_bools(std::vector<TruthRow>& rows);
/// Types at their limits, empty tensors, tensors without dimensions, views, parts without elements.
void add_values(std::vector<TruthRow>& rows);

// What they are made of. Each returns what is wrong, or nothing.

/// Types, sizes and values; NaN is like NaN.
std::string differs(const at::Tensor& tensor, const at::Tensor& right);
std::string differ(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& right);
/// Unless `f` throws RpcError with that in its text.
std::string not_refused(const std::string& text, const std::function<void()>& f);

}  // namespace sinew::testing
