#include <cmath>
#include <limits>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/tests/truth/collectives.h"

namespace sinew::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor numbers(std::initializer_list<double> values, at::ScalarType type = at::kFloat) {
  return at::tensor(std::vector<double>(values), at::kDouble).to(type);
}

struct Type {
  const char* name;
  at::ScalarType type;
};
constexpr Type kFloats[] = {{"float32", at::kFloat},
                            {"float64", at::kDouble},
                            {"float16", at::kHalf},
                            {"bfloat16", at::kBFloat16}};

/// Five numbers of rank 0, of rank 1, and of rank 2. NaN stands at each rank once.
at::Tensor with_nan(int rank, at::ScalarType type) {
  if (rank == 0) return numbers({kNan, 1, -2, -kInfinity, 3}, type);
  if (rank == 1) return numbers({5, kNan, -1, 7, -3}, type);
  return numbers({-4, 2, kNan, kInfinity, 0}, type);
}

at::Tensor largest(int size, at::ScalarType type) {
  return size == 2 ? numbers({kNan, kNan, -1, 7, 3}, type)
                   : numbers({kNan, kNan, kNan, kInfinity, 3}, type);
}

at::Tensor smallest(int size, at::ScalarType type) {
  return size == 2 ? numbers({kNan, kNan, -2, -kInfinity, -3}, type)
                   : numbers({kNan, kNan, kNan, -kInfinity, -3}, type);
}

void add_nan_of_type(TruthRows& rows, const Type& type) {
  const at::ScalarType of = type.type;
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    const bool is_max = op == ReduceOp::kMax;
    const auto right = is_max ? &largest : &smallest;
    const std::string name = absl::StrCat(is_max ? "MAX" : "MIN", " of ", type.name, " with NaN");
    rows.push_back({absl::StrCat("all_reduce ", name), "NaN where any rank has it",
                    [=](const ProcessGroup& group) {
                      const at::Tensor tensor = with_nan(group.rank(), of);
                      group.all_reduce(tensor, op);
                      return differs(tensor, right(group.size(), of));
                    }});
    rows.push_back(
        {absl::StrCat("reduce ", name), "the same at the root", [=](const ProcessGroup& group) {
           const at::Tensor tensor = with_nan(group.rank(), of);
           group.reduce(tensor, 1, op);
           return differs(tensor,
                          group.rank() == 1 ? right(group.size(), of) : with_nan(group.rank(), of));
         }});
    rows.push_back(
        {absl::StrCat("reduce_scatter ", name), "the same", [=](const ProcessGroup& group) {
           const at::Tensor output = at::zeros({5}, of);
           group.reduce_scatter(
               output, Tensors(static_cast<std::size_t>(group.size()), with_nan(group.rank(), of)),
               op);
           return differs(output, right(group.size(), of));
         }});
  }
}

/// `of_rank` at each rank, reduced, is `two` or `three`.
void add_reduced(TruthRows& rows, const std::string& program, ReduceOp op,
                 std::function<at::Tensor(int rank)> of_rank, const at::Tensor& two,
                 const at::Tensor& three, const char* right) {
  rows.push_back({absl::StrCat("all_reduce ", program), right, [=](const ProcessGroup& group) {
                    const at::Tensor tensor = of_rank(group.rank()).clone();
                    group.all_reduce(tensor, op);
                    return differs(tensor, group.size() == 2 ? two : three);
                  }});
}

at::Tensor bools(std::initializer_list<int> values) {
  return at::tensor(std::vector<int>(values), at::kInt).to(at::kBool);
}

/// A bool whose second element is 2 in memory.
at::Tensor odd_bools() { return at::tensor({1, 2, 0}, at::kInt).to(at::kByte).view(at::kBool); }

const char* const kNoBools = "has bytes other than 0 and 1";

void add_refused_bools(TruthRows& rows) {
  const auto add = [&](const char* program, std::function<void(const ProcessGroup&)> call) {
    rows.push_back({absl::StrCat(program, " with a byte of 2"), "refused at the sender",
                    [call](const ProcessGroup& group) {
                      return not_refused(kNoBools, [&] { call(group); });
                    }});
  };
  const auto list = [](const ProcessGroup& group, const at::Tensor& tensor) {
    return Tensors(static_cast<std::size_t>(group.size()), tensor);
  };
  const auto outputs = [](const ProcessGroup& group) {
    return at::zeros({group.size(), 3}, at::kBool).unbind();
  };
  add("send of bool", [](const ProcessGroup& group) {
    group.send(odd_bools(), (group.rank() + 1) % group.size());
  });
  add("isend of bool that is not contiguous", [](const ProcessGroup& group) {
    const at::Tensor bytes = at::tensor({1, 0, 2, 0, 0, 0}, at::kInt).to(at::kByte);
    group.isend(bytes.view(at::kBool).slice(0, 0, 6, 2), (group.rank() + 1) % group.size());
  });
  add("broadcast of bool by the root",
      [](const ProcessGroup& group) { group.broadcast(odd_bools(), group.rank()); });
  add("all_reduce MAX of bool",
      [](const ProcessGroup& group) { group.all_reduce(odd_bools(), ReduceOp::kMax); });
  add("all_reduce MIN of bool",
      [](const ProcessGroup& group) { group.all_reduce(odd_bools(), ReduceOp::kMin); });
  add("reduce MAX of bool at another rank than the root", [](const ProcessGroup& group) {
    group.reduce(odd_bools(), (group.rank() + 1) % group.size(), ReduceOp::kMax);
  });
  add("all_gather of bool",
      [=](const ProcessGroup& group) { group.all_gather(outputs(group), odd_bools()); });
  add("gather of bool at another rank than the root", [](const ProcessGroup& group) {
    group.gather({}, odd_bools(), (group.rank() + 1) % group.size());
  });
  add("scatter of bool by the root", [=](const ProcessGroup& group) {
    group.scatter(at::zeros({3}, at::kBool), list(group, odd_bools()), group.rank());
  });
  add("all_to_all of bool", [=](const ProcessGroup& group) {
    group.all_to_all(outputs(group), list(group, odd_bools()));
  });
  add("reduce_scatter MIN of bool", [=](const ProcessGroup& group) {
    group.reduce_scatter(at::zeros({3}, at::kBool), list(group, odd_bools()), ReduceOp::kMin);
  });
}

}  // namespace

void add_nan(TruthRows& rows) {
  for (const Type& type : kFloats) add_nan_of_type(rows, type);
  const auto at_rank = [](int where) {
    return [where](int rank) { return numbers({rank == where ? kNan : rank + 1.0, -0.5}); };
  };
  for (const int where : {0, 1}) {
    const std::string at = absl::StrCat(" with a NaN at rank ", where, " only");
    add_reduced(rows, "SUM" + at, ReduceOp::kSum, at_rank(where), numbers({kNan, -1}),
                numbers({kNan, -1.5}), "NaN");
    add_reduced(rows, "PRODUCT" + at, ReduceOp::kProduct, at_rank(where), numbers({kNan, 0.25}),
                numbers({kNan, -0.125}), "NaN");
    add_reduced(rows, "AVG" + at, ReduceOp::kAverage, at_rank(where), numbers({kNan, -0.5}),
                numbers({kNan, -0.5}), "NaN");
  }
  const auto signs = [](int rank) {
    return numbers(
        {rank == 0 ? -kNan : 1, std::copysign(kNan, rank - 0.5), rank == 0 ? 1e-45 : -1});
  };
  add_reduced(rows, "MAX of NaN with either sign", ReduceOp::kMax, signs,
              numbers({kNan, kNan, 1e-45}), numbers({kNan, kNan, 1e-45}), "NaN");
  add_reduced(rows, "MIN of NaN with either sign", ReduceOp::kMin, signs, numbers({kNan, kNan, -1}),
              numbers({kNan, kNan, -1}), "NaN");
  const auto ends = [](int rank) {
    return numbers({rank == 0 ? -kInfinity : -3.5e38, rank == 1 ? 1.5 : -1.5, -1.0 - rank},
                   at::kDouble);
  };
  add_reduced(rows, "MAX of negative numbers and infinities", ReduceOp::kMax, ends,
              numbers({-3.5e38, 1.5, -1}, at::kDouble), numbers({-3.5e38, 1.5, -1}, at::kDouble),
              "the largest");
  add_reduced(rows, "MIN of negative numbers and infinities", ReduceOp::kMin, ends,
              numbers({-kInfinity, -1.5, -2}, at::kDouble),
              numbers({-kInfinity, -1.5, -3}, at::kDouble), "the smallest");
  rows.push_back(
      {"all_reduce MAX of a column with NaN", "NaN there, the rest as it was",
       [](const ProcessGroup& group) {
         const at::Tensor matrix = at::zeros({5, 2});
         matrix.select(1, 1).copy_(with_nan(group.rank(), at::kFloat));
         group.all_reduce(matrix.select(1, 1), ReduceOp::kMax);
         return differs(matrix, at::stack({at::zeros({5}), largest(group.size(), at::kFloat)}, 1));
       }});
  rows.push_back(
      {"all_reduce MIN of a NaN without dimensions", "NaN", [](const ProcessGroup& group) {
         const at::Tensor tensor = at::scalar_tensor(group.rank() == 1 ? kNan : 1.0, at::kDouble);
         group.all_reduce(tensor, ReduceOp::kMin);
         return differs(tensor, at::scalar_tensor(kNan, at::kDouble));
       }});
}

void add_bools(TruthRows& rows) {
  add_refused_bools(rows);
  const auto of_rank = [](int rank) { return bools({1, rank == 1, 0, rank != 1}); };
  add_reduced(rows, "MAX of bool", ReduceOp::kMax, of_rank, bools({1, 1, 0, 1}),
              bools({1, 1, 0, 1}), "any");
  add_reduced(rows, "MIN of bool", ReduceOp::kMin, of_rank, bools({1, 0, 0, 0}),
              bools({1, 0, 0, 0}), "all");
  rows.push_back({"all_reduce SUM of bool", "refused", [](const ProcessGroup& group) {
                    return not_refused("use MAX for \"any\"",
                                       [&] { group.all_reduce(bools({1})); });
                  }});
  rows.push_back({"all_gather of bools beside an odd byte", "those that are sent count",
                  [](const ProcessGroup& group) {
                    const at::Tensor outputs = at::zeros({group.size(), 2}, at::kBool);
                    group.all_gather(outputs.unbind(), odd_bools().slice(0, 0, 3, 2));
                    return differs(outputs, bools({1, 0}).expand({group.size(), 2}));
                  }});
  rows.push_back(
      {"broadcast into a bool with an odd byte", "the root's", [](const ProcessGroup& group) {
         const at::Tensor tensor = group.rank() == 0 ? bools({0, 1, 1}) : odd_bools();
         group.broadcast(tensor, 0);
         return differs(tensor, bools({0, 1, 1}));
       }});
}

void add_values(TruthRows& rows) {
  const auto whole = [](at::ScalarType type, std::int64_t value) {
    return [=](int rank) { return at::full({2}, value + rank, type); };
  };
  const auto two = [](std::int64_t value, at::ScalarType type) {
    return at::full({2}, value, type);
  };
  add_reduced(rows, "SUM of uint8 beyond 255", ReduceOp::kSum, whole(at::kByte, 200),
              two(145, at::kByte), two(91, at::kByte), "as one process: modulo 256");
  add_reduced(rows, "SUM of int8 beyond 127", ReduceOp::kSum, whole(at::kChar, 100),
              two(-55, at::kChar), two(47, at::kChar), "as one process");
  add_reduced(rows, "SUM of int16 beyond 32767", ReduceOp::kSum, whole(at::kShort, 30000),
              two(-5535, at::kShort), two(24467, at::kShort), "as one process");
  add_reduced(rows, "MAX of int64 beyond what float64 has", ReduceOp::kMax,
              whole(at::kLong, std::int64_t{1} << 53), two((std::int64_t{1} << 53) + 1, at::kLong),
              two((std::int64_t{1} << 53) + 2, at::kLong), "exact");
  add_reduced(rows, "MIN of int16", ReduceOp::kMin, whole(at::kShort, -32768),
              two(-32768, at::kShort), two(-32768, at::kShort), "exact");
  add_reduced(
      rows, "AVG of float16 whose sum is out of range", ReduceOp::kAverage,
      [](int) { return numbers({60000}, at::kHalf); }, numbers({60000}, at::kHalf),
      numbers({60000}, at::kHalf), "60000, and not infinity");
  add_reduced(
      rows, "SUM of bfloat16", ReduceOp::kSum,
      [](int rank) { return numbers({rank + 0.5}, at::kBFloat16); }, numbers({2}, at::kBFloat16),
      numbers({4.5}, at::kBFloat16), "the sum");
  add_reduced(
      rows, "SUM of complex64", ReduceOp::kSum,
      [](int rank) { return at::complex(numbers({1}), numbers({-1.0 * rank})); },
      at::complex(numbers({2}), numbers({-1})), at::complex(numbers({3}), numbers({-3})),
      "the sum");
  rows.push_back({"all_reduce AVG of int32", "refused", [](const ProcessGroup& group) {
                    return not_refused("the mean of whole numbers is none", [&] {
                      group.all_reduce(at::ones({2}, at::kInt), ReduceOp::kAverage);
                    });
                  }});
  rows.push_back({"all_reduce MIN of complex64", "refused", [](const ProcessGroup& group) {
                    return not_refused("complex numbers have no order", [&] {
                      group.all_reduce(at::ones({2}, at::kComplexFloat), ReduceOp::kMin);
                    });
                  }});
  rows.push_back(
      {"send and recv of nothing and of a scalar", "both come", [](const ProcessGroup& group) {
         const int own = group.rank();
         const int next = (own + 1) % group.size();
         const int before = (own + group.size() - 1) % group.size();
         const Future<void> none = group.isend(at::zeros({0, 2}), next, 1);
         const Future<void> one = group.isend(at::scalar_tensor(own + 0.5), next, 2);
         const at::Tensor scalar = at::scalar_tensor(0.0);
         group.recv(scalar, before, 2);
         group.recv(at::zeros({0, 2}), before, 1);
         none.wait();
         one.wait();
         return differs(scalar, at::scalar_tensor(before + 0.5));
       }});
  rows.push_back({"all_to_all with nothing for some", "rank i has i elements of each",
                  [](const ProcessGroup& group) {
                    Tensors inputs;
                    Tensors outputs;
                    Tensors right;
                    for (int rank = 0; rank < group.size(); ++rank) {
                      inputs.push_back(at::full({rank}, 10 * group.rank() + rank, at::kInt));
                      outputs.push_back(at::zeros({group.rank()}, at::kInt));
                      right.push_back(at::full({group.rank()}, 10 * rank + group.rank(), at::kInt));
                    }
                    group.all_to_all(outputs, inputs);
                    return differ(outputs, right);
                  }});
  rows.push_back({"all_to_all of nothing at all", "nothing", [](const ProcessGroup& group) {
                    const Tensors none(static_cast<std::size_t>(group.size()), at::zeros({0}));
                    group.all_to_all(none, none);
                    return std::string();
                  }});
  rows.push_back(
      {"reduce_scatter with no part for rank 0", "the others' sums", [](const ProcessGroup& group) {
         Tensors inputs;
         for (int rank = 0; rank < group.size(); ++rank) {
           inputs.push_back(at::full({2 * rank}, group.rank() + 1.0));
         }
         const at::Tensor output = at::zeros({2 * group.rank()});
         group.reduce_scatter(output, inputs);
         return differs(output, at::full({2 * group.rank()}, group.size() == 2 ? 3.0 : 6.0));
       }});
  rows.push_back({"reduce_scatter AVG of scalars", "the mean", [](const ProcessGroup& group) {
                    Tensors inputs;
                    for (int rank = 0; rank < group.size(); ++rank) {
                      inputs.push_back(at::scalar_tensor(group.rank() + 10.0 * rank));
                    }
                    const at::Tensor output = at::scalar_tensor(0.0);
                    group.reduce_scatter(output, inputs, ReduceOp::kAverage);
                    const double own = 10.0 * group.rank();
                    return differs(output,
                                   at::scalar_tensor(own + (group.size() == 2 ? 0.5 : 1.0)));
                  }});
  rows.push_back(
      {"all_reduce of a transposed slice", "only its elements", [](const ProcessGroup& group) {
         const at::Tensor matrix = at::ones({3, 4});
         group.all_reduce(matrix.t().slice(0, 0, 4, 2).slice(1, 1, 3));
         const at::Tensor right = at::ones({3, 4});
         for (const int row : {1, 2}) {
           for (const int column : {0, 2}) right[row][column] = group.size();
         }
         return differs(matrix, right);
       }});
}

}  // namespace sinew::testing
