#include "ATen/ops/ones.h"
#include "concepts.h"

namespace basics {

void subgroup(const sinew::ProcessGroup& group) {
  // All ranks call it, also those that will not be among them.
  const sinew::ProcessGroup two = group.new_group({0, 1});
  const at::Tensor tensor = at::ones({1});
  if (two.valid()) two.all_reduce(tensor);
  print_line("Rank  " + std::to_string(group.rank()) + "  has data  " + text_of(tensor));
}

}  // namespace basics
