#include "ATen/ATen.h"
#include "sinew/tests/truth/collectives.h"

namespace sinew::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor four_of(double value) { return at::full({4}, value); }

/// One of each rank.
Tensors by_rank(const ProcessGroup& group, const std::function<at::Tensor(int rank)>& f) {
  Tensors tensors;
  for (int rank = 0; rank < group.size(); ++rank) tensors.push_back(f(rank));
  return tensors;
}

Tensors same(const ProcessGroup& group) {
  return Tensors(static_cast<std::size_t>(group.size()), at::zeros({4}));
}

/// Parts of 4 that begin `step` apart.
Tensors parts(const ProcessGroup& group, std::int64_t step) {
  const at::Tensor memory = at::zeros({4 + 4 * step});
  return by_rank(group, [&](int rank) { return memory.narrow(0, rank * step, 4); });
}

const char* const kShared = "share memory";
const char* const kOverlaps = "several of its elements share memory";

/// What all ranks call with outputs that nobody can fill.
void add_refused_outputs(TruthRows& rows) {
  rows.push_back({"all_gather into vector(size, zeros({4}))", "refused: tensors 0 and 1",
                  [](const ProcessGroup& group) {
                    return not_refused(
                        "tensors 0 and 1 of the outputs of all_gather share memory",
                        [&] { group.all_gather(same(group), four_of(group.rank())); });
                  }});
  rows.push_back({"all_gather into slices that overlap by one element", "refused",
                  [](const ProcessGroup& group) {
                    return not_refused(kShared,
                                       [&] { group.all_gather(parts(group, 3), four_of(1)); });
                  }});
  rows.push_back({"all_gather into windows, unfold(0, 4, 2).unbind()", "refused",
                  [](const ProcessGroup& group) {
                    const at::Tensor memory = at::zeros({2 + 2 * group.size()});
                    return not_refused(kShared, [&] {
                      group.all_gather(memory.unfold(0, 4, 2).unbind(), four_of(1));
                    });
                  }});
  rows.push_back({"all_gather, the last two outputs are one", "refused with their numbers",
                  [](const ProcessGroup& group) {
                    Tensors outputs = by_rank(group, [](int) { return at::zeros({4}); });
                    outputs[outputs.size() - 2] = outputs.back();
                    return not_refused(
                        group.size() == 2 ? "tensors 0 and 1 of" : "tensors 1 and 2 of",
                        [&] { group.all_gather(outputs, four_of(1)); });
                  }});
  rows.push_back({"all_gather into outputs of which one is a matrix of windows", "refused",
                  [](const ProcessGroup& group) {
                    const Tensors outputs = by_rank(group, [](int rank) {
                      return rank == 1 ? at::zeros({5}).unfold(0, 3, 1) : at::zeros({3, 3});
                    });
                    return not_refused("tensor 1 of the outputs of all_gather", [&] {
                      group.all_gather(outputs, at::ones({3, 3}));
                    });
                  }});
  rows.push_back({"gather into one tensor, at the root", "refused", [](const ProcessGroup& group) {
                    if (group.rank() != 1) return std::string();
                    return not_refused("tensors 0 and 1 of the outputs of gather",
                                       [&] { group.gather(same(group), four_of(1), 1); });
                  }});
  rows.push_back({"all_to_all into one tensor", "refused", [](const ProcessGroup& group) {
                    const Tensors inputs = by_rank(group, [](int) { return at::ones({4}); });
                    return not_refused("tensors 0 and 1 of the outputs of all_to_all",
                                       [&] { group.all_to_all(same(group), inputs); });
                  }});
  rows.push_back({"all_to_all into parts of other sizes that overlap", "refused",
                  [](const ProcessGroup& group) {
                    const at::Tensor memory = at::zeros({8});
                    const Tensors outputs =
                        by_rank(group, [&](int rank) { return memory.narrow(0, 0, rank + 1); });
                    const Tensors inputs =
                        by_rank(group, [&](int) { return at::ones({group.rank() + 1}); });
                    return not_refused(kShared, [&] { group.all_to_all(outputs, inputs); });
                  }});
}

/// One tensor that overlaps itself.
void add_refused_windows(TruthRows& rows) {
  const auto add = [&](const char* program,
                       std::function<void(const ProcessGroup&, const at::Tensor&)> call) {
    rows.push_back({program, "refused", [call](const ProcessGroup& group) {
                      const at::Tensor windows = at::zeros({6}).unfold(0, 3, 1);
                      std::string wrong = not_refused(kOverlaps, [&] { call(group, windows); });
                      if (!wrong.empty()) return wrong;
                      // Neither strides of 0 nor rows: elements 0, 1, 1 and 2.
                      const at::Tensor square = at::zeros({3}).as_strided({2, 2}, {1, 1});
                      wrong = not_refused(kOverlaps, [&] { call(group, square); });
                      if (!wrong.empty()) return wrong;
                      return not_refused(kOverlaps,
                                         [&] { call(group, at::zeros({1}).expand({4})); });
                    }});
  };
  add("all_reduce of windows",
      [](const ProcessGroup& group, const at::Tensor& tensor) { group.all_reduce(tensor); });
  add("reduce of windows at the root", [](const ProcessGroup& group, const at::Tensor& tensor) {
    group.reduce(tensor, group.rank());
  });
  add("broadcast into windows", [](const ProcessGroup& group, const at::Tensor& tensor) {
    group.broadcast(tensor, 1 - group.rank() % 2);
  });
  add("scatter into windows", [](const ProcessGroup& group, const at::Tensor& tensor) {
    group.scatter(tensor, {}, 1 - group.rank() % 2);
  });
  add("reduce_scatter into windows", [](const ProcessGroup& group, const at::Tensor& tensor) {
    group.reduce_scatter(tensor, by_rank(group, [&](int) { return at::zeros(tensor.sizes()); }));
  });
  add("recv into windows", [](const ProcessGroup& group, const at::Tensor& tensor) {
    group.recv(tensor, (group.rank() + 1) % group.size(), 0, {std::chrono::seconds(20)});
  });
  add("irecv from anybody into windows", [](const ProcessGroup& group, const at::Tensor& tensor) {
    group.irecv(tensor, std::nullopt, 0, {std::chrono::seconds(20)}).wait();
  });
}

/// Memory that is interleaved, and still each element's own.
void add_interleaved(TruthRows& rows) {
  rows.push_back({"all_gather into the columns of a matrix", "column i has rank i's",
                  [](const ProcessGroup& group) {
                    const at::Tensor matrix = at::zeros({4, group.size()});
                    group.all_gather(matrix.unbind(1), four_of(group.rank() + 1));
                    const at::Tensor right =
                        group.size() == 2 ? at::tensor({1.F, 2.F}) : at::tensor({1.F, 2.F, 3.F});
                    return differs(matrix, right.expand({4, group.size()}));
                  }});
  rows.push_back({"all_gather into tiles of a matrix, side by side", "each its own",
                  [](const ProcessGroup& group) {
                    const at::Tensor matrix = at::zeros({2, 2 * group.size()});
                    group.all_gather(matrix.split(2, 1), at::full({2, 2}, group.rank() + 1.0));
                    const at::Tensor row = group.size() == 2
                                               ? at::tensor({1.F, 1.F, 2.F, 2.F})
                                               : at::tensor({1.F, 1.F, 2.F, 2.F, 3.F, 3.F});
                    return differs(matrix, row.expand({2, 2 * group.size()}));
                  }});
  rows.push_back({"all_reduce of as_strided({3, 2}, {2, 3}): elements 0, 2, 3, 4, 5, 7",
                  "each once, 1 and 6 as they were", [](const ProcessGroup& group) {
                    const at::Tensor memory = at::ones({8});
                    group.all_reduce(memory.as_strided({3, 2}, {2, 3}));
                    const auto sum = static_cast<float>(group.size());
                    return differs(memory, at::tensor({sum, 1.F, sum, sum, sum, sum, 1.F, sum}));
                  }});
  rows.push_back({"all_to_all into every size-th element", "element i is rank i's",
                  [](const ProcessGroup& group) {
                    const at::Tensor memory = at::zeros({2 * group.size()}, at::kLong);
                    const Tensors outputs = by_rank(group, [&](int rank) {
                      return memory.slice(0, rank, 2 * group.size(), group.size());
                    });
                    const Tensors inputs = by_rank(group, [&](int rank) {
                      return at::full({2}, 10 * group.rank() + rank, at::kLong);
                    });
                    group.all_to_all(outputs, inputs);
                    const int own = group.rank();
                    const at::Tensor right = group.size() == 2
                                                 ? at::tensor({own, 10 + own}, at::kLong)
                                                 : at::tensor({own, 10 + own, 20 + own}, at::kLong);
                    return differs(memory, right.repeat({2}));
                  }});
  rows.push_back({"gather into the elements of one tensor, unbind()", "1, 2 (, 3) at the root",
                  [](const ProcessGroup& group) {
                    const at::Tensor memory = at::zeros({group.size()});
                    const bool is_root = group.rank() == 0;
                    group.gather(is_root ? memory.unbind() : Tensors(),
                                 at::scalar_tensor(group.rank() + 1.0), 0);
                    return differs(memory, is_root ? at::arange(1, group.size() + 1, at::kFloat)
                                                   : at::zeros({group.size()}));
                  }});
  rows.push_back(
      {"all_gather of nothing into one empty tensor", "nothing", [](const ProcessGroup& group) {
         group.all_gather(Tensors(static_cast<std::size_t>(group.size()), at::zeros({0, 3})),
                          at::zeros({0, 3}));
         return std::string();
       }});
}

/// Inputs are as they were when the call began.
void add_inputs(TruthRows& rows) {
  rows.push_back(
      {"all_gather in place: the input is the rank's own output", "by rank",
       [](const ProcessGroup& group) {
         const Tensors outputs = by_rank(group, [&](int) { return four_of(group.rank() + 1); });
         group.all_gather(outputs, outputs[static_cast<std::size_t>(group.rank())]);
         return differ(outputs, by_rank(group, [](int rank) { return four_of(rank + 1); }));
       }});
  rows.push_back({"all_gather of a part of the next rank's output", "as it was before",
                  [](const ProcessGroup& group) {
                    const at::Tensor memory = at::full({4 * group.size()}, group.rank() + 1.0);
                    const Tensors outputs = memory.split(4);
                    group.all_gather(outputs, memory.narrow(0, 2, 4));
                    return differ(outputs,
                                  by_rank(group, [](int rank) { return four_of(rank + 1); }));
                  }});
  rows.push_back(
      {"all_to_all in place: outputs are the inputs", "exchanged", [](const ProcessGroup& group) {
         const int own = group.rank();
         const Tensors tensors = at::arange(group.size(), at::kFloat)
                                     .add(10 * own)
                                     .view({-1, 1})
                                     .repeat({1, 4})
                                     .unbind();
         group.all_to_all(tensors, tensors);
         return differ(tensors, by_rank(group, [&](int rank) { return four_of(10 * rank + own); }));
       }});
  rows.push_back(
      {"scatter into one of the inputs", "rank i has i + 1", [](const ProcessGroup& group) {
         const bool is_root = group.rank() == 0;
         const Tensors inputs = by_rank(group, [](int rank) { return four_of(rank + 1); });
         // Of another rank's at the root.
         const at::Tensor output = is_root ? inputs[1] : at::zeros({4});
         group.scatter(output, is_root ? inputs : Tensors(), 0);
         return differs(output, four_of(group.rank() + 1));
       }});
  rows.push_back({"reduce_scatter into the first input", "sums of what was there before",
                  [](const ProcessGroup& group) {
                    const Tensors inputs =
                        by_rank(group, [&](int rank) { return four_of(10 * group.rank() + rank); });
                    group.reduce_scatter(inputs[0], inputs);
                    const double right =
                        group.size() == 2 ? 10 + 2 * group.rank() : 30 + 3 * group.rank();
                    return differs(inputs[0], four_of(right));
                  }});
  rows.push_back(
      {"gather, the root's input is another rank's output", "by rank at the root",
       [](const ProcessGroup& group) {
         const Tensors outputs = by_rank(group, [&](int) { return four_of(group.rank() + 1); });
         const bool is_root = group.rank() == 0;
         group.gather(is_root ? outputs : Tensors(), outputs[1], 0);
         if (!is_root) return std::string();
         return differ(outputs, by_rank(group, [](int rank) { return four_of(rank + 1); }));
       }});
  rows.push_back(
      {"broadcast of an expanded tensor by the root", "its values", [](const ProcessGroup& group) {
         const bool is_root = group.rank() == 1;
         const at::Tensor tensor = is_root ? at::full({1}, 7.0).expand({4}) : at::zeros({4});
         group.broadcast(tensor, 1);
         return differs(tensor, four_of(7));
       }});
}

}  // namespace

void add_shared_memory(TruthRows& rows) {
  add_refused_outputs(rows);
  add_refused_windows(rows);
  add_interleaved(rows);
  add_inputs(rows);
}

}  // namespace sinew::testing
