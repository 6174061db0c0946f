#include "sinew/tests/groups/truth_table.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/tests/groups/truth_rows.h"

namespace sinew::testing {

std::string differs(const at::Tensor& tensor, const at::Tensor& right) {
  const bool is_alike =
      tensor.scalar_type() == right.scalar_type() && tensor.sizes() == right.sizes() &&
      (at::isFloatingType(tensor.scalar_type()) ? at::allclose(tensor, right, 0, 0, true)
                                                : tensor.equal(right));
  if (is_alike) return "";
  std::ostringstream text;
  text << "it is " << tensor << ", and not " << right;
  return text.str();
}

std::string differ(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& right) {
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    const std::string problem = differs(tensors[at], right[at]);
    if (!problem.empty()) return absl::StrCat("tensor ", at, ": ", problem);
  }
  return tensors.size() == right.size() ? "" : "there are more or less tensors";
}

std::string not_refused(const std::string& text, const std::function<void()>& f) {
  try {
    f();
  } catch (const RpcError& error) {
    if (error.message().find(text) != std::string::npos) return "";
    return absl::StrCat("the error is: ", error.what());
  }
  return absl::StrCat("nothing was refused, such as: ", text);
}

const std::vector<TruthRow>& truth_table() {
  static const std::vector<TruthRow> table = [] {
    std::vector<TruthRow> rows;
    add_shared_memory(rows);
    add_nan(rows);
    add_bools(rows);
    add_values(rows);
    return rows;
  }();
  return table;
}

std::vector<std::string> wrong_rows(const ProcessGroup& group) {
  std::vector<std::string> wrong;
  for (const TruthRow& row : truth_table()) {
    std::string problem;
    try {
      problem = row.run(group);
    } catch (const std::exception& error) {
      problem = absl::StrCat("it throws: ", error.what());
    }
    // Some rows are for some of the ranks alone.
    group.barrier();
    if (problem.empty()) continue;
    wrong.push_back(absl::StrCat("rank ", group.rank(), " of ", group.size(), ", ", row.program,
                                 ": ", problem));
  }
  return wrong;
}

}  // namespace sinew::testing
