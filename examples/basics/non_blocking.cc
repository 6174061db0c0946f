#include "ATen/ops/zeros.h"
#include "concepts.h"

namespace basics {

void non_blocking(const sinew::ProcessGroup& group) {
  const at::Tensor tensor = at::zeros({1});
  if (group.rank() == 0) {
    tensor.add_(1);
    const sinew::Future<void> sent = group.isend(tensor, 1);
    print_line("Rank 0 started sending");
    // Until then the tensor must not be changed.
    sent.wait();
  } else if (group.rank() == 1) {
    const sinew::Future<int> received = group.irecv(tensor, 0);
    print_line("Rank 1 started receiving");
    // Until then the tensor may hold anything.
    received.wait();
  }
  print_line("Rank  " + std::to_string(group.rank()) + "  has data  " + text_of(tensor));
}

}  // namespace basics
