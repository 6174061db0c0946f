#include "ATen/ops/zeros.h"
#include "concepts.h"

namespace basics {

void blocking(const sinew::ProcessGroup& group) {
  const at::Tensor tensor = at::zeros({1});
  if (group.rank() == 0) {
    tensor.add_(1);
    group.send(tensor, 1);
  } else if (group.rank() == 1) {
    group.recv(tensor, 0);
  }
  print_line("Rank  " + std::to_string(group.rank()) + "  has data  " + text_of(tensor));
}

}  // namespace basics
