// Each function, with each type and reduction, against LibTorch in one process; and the table in
// docs/groups.md, which is made of what ran here.

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "sinew/rpc/base/error.h"
#include "sinew/tests/groups/ranks.h"

using sinew::ErrorCode;
using sinew::ProcessGroup;
using sinew::ReduceOp;
using sinew::RpcError;
using sinew::testing::Ranks;

namespace {

constexpr int kSize = 3;

struct Type {
  const char* name;
  at::ScalarType type;
};
const Type kTypes[] = {{"float64", at::kDouble},
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

struct Op {
  const char* name;
  ReduceOp op;
};
const Op kOps[] = {{"SUM", ReduceOp::kSum},
                   {"AVG", ReduceOp::kAverage},
                   {"PRODUCT", ReduceOp::kProduct},
                   {"MIN", ReduceOp::kMin},
                   {"MAX", ReduceOp::kMax}};

/// What rank `rank` has; small whole numbers, exact in all types.
at::Tensor value(int rank, at::ScalarType type, int part = 0) {
  const at::Tensor numbers = (at::arange(6, at::kLong) * (rank + 1) + part) % 4;
  return numbers.to(type).view({2, 3});
}

std::vector<at::Tensor> values(at::ScalarType type, int part = 0) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < kSize; ++rank) all.push_back(value(rank, type, part));
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

/// A cell of the table: runs `f`, which says whether the results are right.
enum class Cell { kYes, kRefused };

class Table {
 public:
  /// Fails the test if the results are wrong, or ranks differ.
  void run(const ProcessGroup& group, const std::string& row, const std::string& column,
           const std::function<bool()>& f) {
    Cell cell = Cell::kYes;
    try {
      EXPECT_TRUE(f()) << row << " of " << column << " is wrong at rank " << group.rank();
    } catch (const RpcError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnimplemented)
          << row << ", " << column << ": " << error.what();
      EXPECT_GT(error.message().size(), 20U);
      cell = Cell::kRefused;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [found, is_new] = cells_[row].emplace(column, cell);
    EXPECT_EQ(found->second, cell) << row << ", " << column;
    (void)is_new;
    if (std::find(rows_.begin(), rows_.end(), row) == rows_.end()) rows_.push_back(row);
  }

  /// In Markdown.
  std::string text() const {
    std::vector<std::string> names;
    for (const Type& type : kTypes) names.push_back(type.name);
    std::string text = absl::StrCat("| gloo, CPU | ", absl::StrJoin(names, " | "), " |\n|");
    for (std::size_t column = 0; column <= names.size(); ++column) text += " --- |";
    for (const std::string& row : rows_) {
      absl::StrAppend(&text, "\n| ", row, " |");
      for (const std::string& name : names) {
        const auto& cells = cells_.at(row);
        const auto found = cells.find(name);
        text += found == cells.end() ? " |" : found->second == Cell::kYes ? " yes |" : " - |";
      }
    }
    return text + "\n";
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> rows_;
  std::map<std::string, std::map<std::string, Cell>> cells_;
};

void run_moves(const ProcessGroup& group, const Type& type, Table& table) {
  const int own = group.rank();
  const auto at = [](int rank) { return static_cast<std::size_t>(rank); };
  const auto zeros = [&] { return at::zeros({2, 3}, type.type); };
  const auto list = [&] { return std::vector<at::Tensor>{zeros(), zeros(), zeros()}; };
  table.run(group, "send, recv", type.name, [&] {
    const auto sent = group.isend(value(own, type.type), (own + 1) % kSize, 4);
    const at::Tensor received = zeros();
    const int from = (own + kSize - 1) % kSize;
    const bool named = group.recv(received, from, 4) == from;
    sent.wait();
    return named && received.equal(value(from, type.type));
  });
  table.run(group, "recv from anybody", type.name, [&] {
    const auto sent = group.isend(value(own, type.type), (own + 1) % kSize, 5);
    const at::Tensor received = zeros();
    const int from = group.recv(received, std::nullopt, 5);
    sent.wait();
    return from == (own + kSize - 1) % kSize && received.equal(value(from, type.type));
  });
  table.run(group, "broadcast", type.name, [&] {
    const at::Tensor tensor = value(own, type.type);
    group.broadcast(tensor, 1);
    return tensor.equal(value(1, type.type));
  });
  table.run(group, "scatter", type.name, [&] {
    const at::Tensor output = zeros();
    group.scatter(output, own == 2 ? values(type.type) : std::vector<at::Tensor>(), 2);
    return output.equal(value(own, type.type));
  });
  table.run(group, "gather", type.name, [&] {
    const std::vector<at::Tensor> outputs = own == 1 ? list() : std::vector<at::Tensor>();
    group.gather(outputs, value(own, type.type), 1);
    bool right = true;
    for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
      right = right && outputs[rank].equal(values(type.type)[rank]);
    }
    return right;
  });
  table.run(group, "all_gather", type.name, [&] {
    const std::vector<at::Tensor> outputs = list();
    group.all_gather(outputs, value(own, type.type));
    bool right = true;
    for (int rank = 0; rank < kSize; ++rank) {
      right = right && outputs[at(rank)].equal(value(rank, type.type));
    }
    return right;
  });
  table.run(group, "all_to_all", type.name, [&] {
    const std::vector<at::Tensor> outputs = list();
    std::vector<at::Tensor> inputs;
    for (int rank = 0; rank < kSize; ++rank) inputs.push_back(value(own, type.type, rank));
    group.all_to_all(outputs, inputs);
    bool right = true;
    for (int rank = 0; rank < kSize; ++rank) {
      right = right && outputs[at(rank)].equal(value(rank, type.type, own));
    }
    return right;
  });
}

void run_reductions(const ProcessGroup& group, const Type& type, const Op& op, Table& table) {
  const int own = group.rank();
  table.run(group, absl::StrCat("all_reduce ", op.name), type.name, [&] {
    const at::Tensor tensor = value(own, type.type);
    group.all_reduce(tensor, op.op);
    return alike(tensor, reduced(values(type.type), op.op));
  });
  table.run(group, absl::StrCat("reduce ", op.name), type.name, [&] {
    const at::Tensor tensor = value(own, type.type);
    group.reduce(tensor, 1, op.op);
    // The others' tensors stay as they are.
    return own == 1 ? alike(tensor, reduced(values(type.type), op.op))
                    : tensor.equal(value(own, type.type));
  });
  table.run(group, absl::StrCat("reduce_scatter ", op.name), type.name, [&] {
    std::vector<at::Tensor> inputs;
    for (int part = 0; part < kSize; ++part) inputs.push_back(value(own, type.type, part));
    const at::Tensor output = at::zeros({2, 3}, type.type);
    group.reduce_scatter(output, inputs, op.op);
    return alike(output, reduced(values(type.type, own), op.op));
  });
}

TEST(Functions, DoWhatTheTableSays) {
  Table table;
  Ranks(kSize).run([&](const ProcessGroup& group) {
    for (const Type& type : kTypes) run_moves(group, type, table);
    for (const Op& op : kOps) {
      for (const Type& type : kTypes) run_reductions(group, type, op, table);
    }
    group.barrier();
  });
  const std::string text = table.text();
  std::ifstream file(SINEW_SOURCE_DIR "/docs/groups.md");
  std::stringstream document;
  document << file.rdbuf();
  EXPECT_NE(document.str().find(text), std::string::npos)
      << "docs/groups.md has another table. It should have this:\n"
      << text;
}

}  // namespace
