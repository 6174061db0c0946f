#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sinew/groups/process_group.h"

namespace sinew::testing {

/// A small program that all ranks of a group run, and what is right for it: values that were
/// computed by hand, or a refusal with its sentence.
struct TruthRow {
  std::string program;
  /// What is right, for people.
  std::string right;
  /// Empty, or what came out instead.
  std::function<std::string(const ProcessGroup& group)> run;
};

/// For groups of two and of three.
const std::vector<TruthRow>& truth_table();

/// Runs the whole table in a group. Returns the rows that came out otherwise, with what came out.
std::vector<std::string> wrong_rows(const ProcessGroup& group);

}  // namespace sinew::testing
