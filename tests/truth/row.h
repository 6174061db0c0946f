#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/groups/process_group.h"

namespace sinew::testing {

/// A small program that all ranks of a group run, and what is right for it: numbers that were
/// computed by hand or by one process, or a refusal with its sentence. For groups of two and three.
struct TruthRow {
  std::string program;
  /// What is right, for people.
  std::string right;
  /// Empty, or what was seen instead. All ranks run it.
  std::function<std::string(const ProcessGroup& group)> run;
};
using TruthRows = std::vector<TruthRow>;

/// Runs rows in a group. Returns those that came out otherwise: each with its program, the rank,
/// what is right, and what was seen.
std::vector<std::string> wrong_rows(const ProcessGroup& group, const TruthRows& rows);

// Kinds of rows. Each program runs in a group of its own, made of the row's.

using Numbers = std::vector<double>;
using Right = std::function<Numbers(int size)>;

/// Numbers that are the same on all ranks, to the bit, and near `right` of the group's size.
TruthRow numbers_row(const std::string& program, const Right& right,
                     const std::function<Numbers(const ProcessGroup& group)>& run,
                     double precision = 1e-9);
/// All ranks get an RpcError with that in its text.
TruthRow refused_row(const std::string& program, const std::string& sentence,
                     const std::function<void(const ProcessGroup& group)>& run);

// What programs are made of. Each of the first three returns what is wrong, or nothing.

/// Types, sizes and values; NaN is like NaN.
std::string differs(const at::Tensor& tensor, const at::Tensor& right);
std::string differ(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& right);
/// Unless `f` throws RpcError with that in its text.
std::string not_refused(const std::string& sentence, const std::function<void()>& f);
/// Throws what was seen instead.
void must_refuse(const std::string& sentence, const std::function<void()>& f);

}  // namespace sinew::testing
