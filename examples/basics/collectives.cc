#include <vector>

#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "concepts.h"

namespace basics {
namespace {

/// One number, the rank's own: 1 for rank 0, and so on.
at::Tensor own(const sinew::ProcessGroup& group) { return at::full({1}, group.rank() + 1.0); }

std::vector<at::Tensor> empty_for_each(const sinew::ProcessGroup& group) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < group.size(); ++rank) tensors.push_back(at::zeros({1}));
  return tensors;
}

/// 10 times the own number, and the rank that it is for: 12 goes from rank 0 to rank 2.
std::vector<at::Tensor> one_for_each(const sinew::ProcessGroup& group) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < group.size(); ++rank) {
    tensors.push_back(at::full({1}, 10.0 * (group.rank() + 1) + rank));
  }
  return tensors;
}

void show(const sinew::ProcessGroup& group, const std::string& operation,
          const std::vector<at::Tensor>& tensors) {
  std::string line = operation + ": Rank  " + std::to_string(group.rank()) + "  has data ";
  for (const at::Tensor& tensor : tensors) line += " " + text_of(tensor);
  print_line(line);
}

void show_reductions(const sinew::ProcessGroup& group) {
  using sinew::ReduceOp;
  at::Tensor tensor = own(group);
  group.reduce(tensor, 0);
  // What the others have is not the sum, and nothing to rely on.
  if (group.rank() == 0) show(group, "reduce", {tensor});
  const std::pair<const char*, ReduceOp> operations[] = {{"sum", ReduceOp::kSum},
                                                         {"product", ReduceOp::kProduct},
                                                         {"min", ReduceOp::kMin},
                                                         {"max", ReduceOp::kMax},
                                                         {"average", ReduceOp::kAverage}};
  for (const auto& [name, operation] : operations) {
    tensor = own(group);
    group.all_reduce(tensor, operation);
    show(group, "all_reduce " + std::string(name), {tensor});
  }
  tensor = at::zeros({1});
  group.reduce_scatter(tensor, one_for_each(group));
  show(group, "reduce_scatter", {tensor});
}

}  // namespace

void collectives(const sinew::ProcessGroup& group) {
  at::Tensor tensor = own(group);
  group.broadcast(tensor, 0);
  show(group, "broadcast", {tensor});

  show_reductions(group);

  const bool root = group.rank() == 0;
  tensor = at::zeros({1});
  group.scatter(tensor, root ? one_for_each(group) : std::vector<at::Tensor>(), 0);
  show(group, "scatter", {tensor});

  std::vector<at::Tensor> all = root ? empty_for_each(group) : std::vector<at::Tensor>();
  group.gather(all, own(group), 0);
  if (root) show(group, "gather", all);

  all = empty_for_each(group);
  group.all_gather(all, own(group));
  show(group, "all_gather", all);

  all = empty_for_each(group);
  group.all_to_all(all, one_for_each(group));
  show(group, "all_to_all", all);

  group.barrier();
}

}  // namespace basics
