#include "sinew/tests/groups/function_table.h"

#include <algorithm>
#include <optional>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"

namespace sinew::testing {

struct FunctionTable::Type {
  const char* name;
  at::ScalarType type;

  static const std::vector<Type>& all() {
    static const std::vector<Type> all{{"float64", at::kDouble},
                                       {"float32", at::kFloat},
                                       {"float16", at::kHalf},
                                       {"bfloat16", at::kBFloat16},
                                       {"int64", at::kLong},
                                       {"int32", at::kInt},
                                       {"int16", at::kShort},
                                       {"int8", at::kChar},
                                       {"uint8", at::kByte},
                                       {"bool", at::kBool},
                                       {"complex64", at::kComplexFloat}};
    return all;
  }
};

struct FunctionTable::Op {
  const char* name;
  ReduceOp op;

  static const std::vector<Op>& all() {
    static const std::vector<Op> all{{"SUM", ReduceOp::kSum},
                                     {"AVG", ReduceOp::kAverage},
                                     {"PRODUCT", ReduceOp::kProduct},
                                     {"MIN", ReduceOp::kMin},
                                     {"MAX", ReduceOp::kMax}};
    return all;
  }
};

namespace {

constexpr int kRanks = FunctionTable::kRanks;

/// What rank `rank` has; small whole numbers, exact in all types.
at::Tensor value(int rank, at::ScalarType type, int part = 0) {
  const at::Tensor numbers = (at::arange(6, at::kLong) * (rank + 1) + part) % 4;
  return numbers.to(type).view({2, 3});
}

std::vector<at::Tensor> values(at::ScalarType type, int part = 0) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < kRanks; ++rank) all.push_back(value(rank, type, part));
  return all;
}

at::Tensor reduced(const std::vector<at::Tensor>& all, ReduceOp op) {
  // Small whole numbers: exact in double precision.
  const at::ScalarType type = all[0].scalar_type();
  const bool complex = c10::isComplexType(type);
  at::Tensor result = all[0].to(complex ? at::kComplexDouble : at::kDouble);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const at::Tensor part = all[rank].to(result.scalar_type());
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) result = result + part;
    if (op == ReduceOp::kProduct) result = result * part;
    if (op == ReduceOp::kMin) result = at::minimum(result, part);
    if (op == ReduceOp::kMax) result = at::maximum(result, part);
  }
  if (op == ReduceOp::kAverage) result = result / static_cast<double>(all.size());
  return result.to(type);
}

bool alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         at::allclose(a.to(at::kComplexDouble), b.to(at::kComplexDouble), 1e-2, 1e-6);
}

}  // namespace

void FunctionTable::fill(const ProcessGroup& group) {
  for (const Type& type : Type::all()) run_moves(group, type);
  for (const Op& op : Op::all()) {
    for (const Type& type : Type::all()) run_reductions(group, type, op);
  }
}

std::string FunctionTable::text(std::string_view corner) const {
  std::string text = absl::StrCat("| ", std::string(corner), " |");
  for (const Type& type : Type::all()) absl::StrAppend(&text, " ", type.name, " |");
  text += "\n|";
  for (std::size_t column = 0; column <= Type::all().size(); ++column) text += " --- |";
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const std::string& row : rows_) {
    absl::StrAppend(&text, "\n| ", row, " |");
    for (const Type& type : Type::all()) text += cells_.at(row).at(type.name) ? " yes |" : " - |";
  }
  return text + "\n";
}

std::vector<std::string> FunctionTable::problems() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return problems_;
}

void FunctionTable::run(const ProcessGroup& group, const std::string& row, const Type& type,
                        const std::function<bool()>& f) {
  std::string problem;
  bool is_there = true;
  try {
    if (!f() && results_ == Results::kCompared) problem = "the result is wrong";
  } catch (const RpcError& error) {
    is_there = false;
    if (error.code() != ErrorCode::kUnimplemented || error.message().size() <= 20) {
      problem = error.what();
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::find(rows_.begin(), rows_.end(), row) == rows_.end()) rows_.push_back(row);
  const bool known = cells_[row].emplace(type.name, is_there).first->second;
  if (problem.empty() && known != is_there) problem = "another rank has it otherwise";
  if (problem.empty()) return;
  problems_.push_back(
      absl::StrCat(row, " of ", type.name, " at rank ", group.rank(), ": ", problem));
}

void FunctionTable::run_moves(const ProcessGroup& group, const Type& type) {
  const int own = group.rank();
  const auto at = [](int rank) { return static_cast<std::size_t>(rank); };
  const auto zeros = [&] { return at::zeros({2, 3}, type.type); };
  const auto list = [&] { return std::vector<at::Tensor>{zeros(), zeros(), zeros()}; };
  run(group, "send, recv", type, [&] {
    const auto sent = group.isend(value(own, type.type), (own + 1) % kRanks, 4);
    const at::Tensor received = zeros();
    const int from = (own + kRanks - 1) % kRanks;
    const bool named = group.recv(received, from, 4) == from;
    sent.wait();
    return named && received.equal(value(from, type.type));
  });
  run(group, "recv from anybody", type, [&] {
    const auto sent = group.isend(value(own, type.type), (own + 1) % kRanks, 5);
    const at::Tensor received = zeros();
    const int from = group.recv(received, std::nullopt, 5);
    sent.wait();
    return from == (own + kRanks - 1) % kRanks && received.equal(value(from, type.type));
  });
  run(group, "broadcast", type, [&] {
    const at::Tensor tensor = value(own, type.type);
    group.broadcast(tensor, 1);
    return tensor.equal(value(1, type.type));
  });
  run(group, "scatter", type, [&] {
    const at::Tensor output = zeros();
    group.scatter(output, own == 2 ? values(type.type) : std::vector<at::Tensor>(), 2);
    return output.equal(value(own, type.type));
  });
  run(group, "gather", type, [&] {
    const std::vector<at::Tensor> outputs = own == 1 ? list() : std::vector<at::Tensor>();
    group.gather(outputs, value(own, type.type), 1);
    bool right = true;
    for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
      right = right && outputs[rank].equal(values(type.type)[rank]);
    }
    return right;
  });
  run(group, "all_gather", type, [&] {
    const std::vector<at::Tensor> outputs = list();
    group.all_gather(outputs, value(own, type.type));
    bool right = true;
    for (int rank = 0; rank < kRanks; ++rank) {
      right = right && outputs[at(rank)].equal(value(rank, type.type));
    }
    return right;
  });
  run(group, "all_to_all", type, [&] {
    const std::vector<at::Tensor> outputs = list();
    std::vector<at::Tensor> inputs;
    for (int rank = 0; rank < kRanks; ++rank) inputs.push_back(value(own, type.type, rank));
    group.all_to_all(outputs, inputs);
    bool right = true;
    for (int rank = 0; rank < kRanks; ++rank) {
      right = right && outputs[at(rank)].equal(value(rank, type.type, own));
    }
    return right;
  });
}

void FunctionTable::run_reductions(const ProcessGroup& group, const Type& type, const Op& op) {
  const int own = group.rank();
  run(group, absl::StrCat("all_reduce ", op.name), type, [&] {
    const at::Tensor tensor = value(own, type.type);
    group.all_reduce(tensor, op.op);
    return alike(tensor, reduced(values(type.type), op.op));
  });
  run(group, absl::StrCat("reduce ", op.name), type, [&] {
    const at::Tensor tensor = value(own, type.type);
    group.reduce(tensor, 1, op.op);
    // The others' tensors stay as they are.
    return own == 1 ? alike(tensor, reduced(values(type.type), op.op))
                    : tensor.equal(value(own, type.type));
  });
  run(group, absl::StrCat("reduce_scatter ", op.name), type, [&] {
    std::vector<at::Tensor> inputs;
    for (int part = 0; part < kRanks; ++part) inputs.push_back(value(own, type.type, part));
    const at::Tensor output = at::zeros({2, 3}, type.type);
    group.reduce_scatter(output, inputs, op.op);
    return alike(output, reduced(values(type.type, own), op.op));
  });
}

}  // namespace sinew::testing
