// Each function, with each type and reduction, against LibTorch in one process; and the tables in
// docs/groups.md, which are made of what ran here.

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/groups/internal/group_engine.h"
#include "sinew/groups/internal/nccl_rules.h"
#include "sinew/tests/groups/function_table.h"
#include "sinew/tests/groups/ranks.h"
#include "torch/csrc/distributed/c10d/Work.hpp"

using sinew::ProcessGroup;
using sinew::ReduceOp;
using sinew::internal::Backend;
using sinew::internal::C10dBackend;
using sinew::internal::Function;
using sinew::internal::GroupEngine;
using sinew::testing::FunctionTable;
using sinew::testing::Ranks;

namespace {

void expect_in_document(const std::string& table) {
  std::ifstream file(SINEW_SOURCE_DIR "/docs/groups.md");
  std::stringstream document;
  document << file.rdbuf();
  EXPECT_NE(document.str().find(table), std::string::npos)
      << "docs/groups.md has another table. It should have this:\n"
      << table;
}

TEST(Functions, DoWhatTheTableSays) {
  FunctionTable table;
  Ranks(FunctionTable::kRanks).run([&](const ProcessGroup& group) {
    table.fill(group);
    group.barrier();
  });
  EXPECT_THAT(table.problems(), ::testing::IsEmpty());
  expect_in_document(table.text("gloo, CPU"));
}

// ---- NCCL, of which only what it says that it has can be asked without a GPU.

class DoneWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

/// Does nothing, at once, but for what ranks compare: all others say what this one does.
class IdleC10d final : public C10dBackend {
 public:
  IdleC10d() : C10dBackend(0, FunctionTable::kRanks) {}

  const std::string getBackendName() const override { return "idle"; }

  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override { return done(); }
  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override { return done(); }
  WorkPtr reduce(Tensors&, const c10d::ReduceOptions&) override { return done(); }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions&) override {
    for (at::Tensor& output : outputs.front()) output.copy_(inputs.front());
    return done();
  }
  WorkPtr gather(std::vector<Tensors>&, Tensors&, const c10d::GatherOptions&) override {
    return done();
  }
  WorkPtr scatter(Tensors&, std::vector<Tensors>&, const c10d::ScatterOptions&) override {
    return done();
  }
  WorkPtr reduce_scatter(Tensors&, std::vector<Tensors>&,
                         const c10d::ReduceScatterOptions&) override {
    return done();
  }
  WorkPtr alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override { return done(); }
  WorkPtr send(Tensors&, int, int) override { return done(); }
  WorkPtr recv(Tensors&, int, int) override { return done(); }
  WorkPtr barrier(const c10d::BarrierOptions&) override { return done(); }

 private:
  static WorkPtr done() { return c10::make_intrusive<DoneWork>(); }
};

class AsNccl final : public Backend {
 public:
  explicit AsNccl(int torch_major) : torch_major_(torch_major) {}

  std::string_view name() const override { return "nccl"; }
  C10dBackend& c10d() override { return *idle_; }
  bool can(Function function) const override {
    return sinew::internal::nccl_can(function, torch_major_);
  }
  bool reduces(at::ScalarType type, ReduceOp op) const override {
    return sinew::internal::nccl_reduces(type, op);
  }
  bool has_future(Function) const override { return false; }
  void abort(const absl::Status&) override {}

 private:
  const int torch_major_;
  const c10::intrusive_ptr<IdleC10d> idle_ = c10::make_intrusive<IdleC10d>();
};

std::string nccl_table(int torch_major) {
  GroupEngine::Setup setup;
  setup.name = "nccl";
  setup.size = FunctionTable::kRanks;
  setup.timeout = std::chrono::minutes(1);
  const auto engine =
      GroupEngine::make(setup, {{c10::DeviceType::CPU, std::make_shared<AsNccl>(torch_major)}});
  const ProcessGroup group = sinew::ProcessGroupAccess::make(engine);
  FunctionTable table(FunctionTable::Results::kIgnored);
  table.fill(group);
  EXPECT_THAT(table.problems(), ::testing::IsEmpty());
  return table.text("nccl, GPU");
}

TEST(Functions, OfNcclAreWhatTheTableSays) {
  const std::string table = nccl_table(2);
  expect_in_document(table);
  // LibTorch 1.13 has two functions less.
  std::string older = table;
  for (const std::string row : {"\n| scatter |", "\n| gather |"}) {
    const std::size_t begin = older.find(row) + row.size();
    const std::size_t end = older.find('\n', begin);
    ASSERT_NE(begin, std::string::npos);
    std::string cells;
    for (std::size_t at = begin; at + 1 < end; at += 6) cells += " - |";
    older.replace(begin, end - begin, cells);
  }
  EXPECT_EQ(nccl_table(1), older);
}

}  // namespace
