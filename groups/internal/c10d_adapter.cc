#include "sinew/groups/internal/c10d_adapter.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/groups/internal/c10d_types.h"
#include "sinew/groups/internal/collectives.h"
#include "sinew/groups/internal/group_engine.h"
#include "sinew/groups/internal/reduction.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// An operation of the group as LibTorch sees it.
class AdapterWork final : public c10d::Work {
 public:
  AdapterWork(int rank, Tensors outputs, std::vector<c10::Device> devices)
      : c10d::Work(rank),
        outputs_(std::move(outputs)),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()), std::move(devices))) {}

  void complete(const std::exception_ptr& error, int source) {
    source_ = source;
    if (error != nullptr) {
      future_->setError(error);
    } else {
      future_->markCompleted(c10::IValue(outputs_));
    }
    finish(error);
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  Tensors result() override { return outputs_; }
  int sourceRank() const override { return source_; }
  void synchronize() override {}

 private:
  const Tensors outputs_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  int source_ = -1;
};

[[noreturn]] void refuse_operation(const std::string& text) {
  throw RpcError(ErrorCode::kUnimplemented, text);
}

const at::Tensor& only(const Tensors& tensors, const char* function) {
  if (tensors.size() != 1) {
    refuse_operation(
        absl::StrCat(function, " of ", tensors.size(), " tensors at once; a group takes one"));
  }
  return tensors.front();
}

Tensors only_list(const std::vector<Tensors>& lists, const char* function) {
  if (lists.empty()) return {};
  if (lists.size() != 1) {
    refuse_operation(
        absl::StrCat(function, " of ", lists.size(), " lists at once; a group takes one"));
  }
  return lists.front();
}

std::optional<std::chrono::nanoseconds> timeout_of(std::chrono::milliseconds timeout) {
  if (timeout == c10d::kUnsetTimeout) return std::nullopt;
  return timeout;
}

class C10dAdapter final : public C10dBackend {
 public:
  C10dAdapter(const sinew::ProcessGroup& group, c10::DeviceType device, std::int64_t module)
      : C10dBackend(group.rank(), group.size()),
        group_(group),
        engine_(ProcessGroupAccess::engine(group)),
        device_(device),
        module_(module) {}

  const std::string getBackendName() const override { return "sinew"; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const int root = static_cast<int>(options.rootRank);
    return run(make_broadcast(*engine_, only(tensors, "broadcast"), root), tensors,
               options.timeout);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return run(
        make_all_reduce(*engine_, only(tensors, "all_reduce"), reduce_op_of(options.reduceOp)),
        tensors, options.timeout);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return run(make_reduce(*engine_, only(tensors, "reduce"), static_cast<int>(options.rootRank),
                           reduce_op_of(options.reduceOp)),
               tensors, options.timeout);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    const Tensors into = only_list(outputs, "all_gather");
    return run(make_all_gather(*engine_, into, only(inputs, "all_gather")), into, options.timeout);
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    const Tensors into = only_list(outputs, "gather");
    return run(
        make_gather(*engine_, into, only(inputs, "gather"), static_cast<int>(options.rootRank)),
        into, options.timeout);
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override {
    return run(make_scatter(*engine_, only(outputs, "scatter"), only_list(inputs, "scatter"),
                            static_cast<int>(options.rootRank)),
               outputs, options.timeout);
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return run(
        make_reduce_scatter(*engine_, only(outputs, "reduce_scatter"),
                            only_list(inputs, "reduce_scatter"), reduce_op_of(options.reduceOp)),
        outputs, options.timeout);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override {
    return run(make_all_to_all(*engine_, outputs, inputs), outputs, options.timeout);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return run(make_barrier(*engine_), {}, options.timeout);
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return run(make_send(*engine_, only(tensors, "send"), to, tag), tensors, c10d::kUnsetTimeout);
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return run(make_recv(*engine_, only(tensors, "recv"), from, tag), tensors, c10d::kUnsetTimeout);
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return run(make_recv(*engine_, only(tensors, "recv"), std::nullopt, tag), tensors,
               c10d::kUnsetTimeout);
  }

 private:
  WorkPtr run(Operation operation, const Tensors& outputs, std::chrono::milliseconds timeout) {
    std::vector<c10::Device> devices;
    if (device_ != c10::DeviceType::CPU && !outputs.empty()) {
      devices.push_back(outputs.front().device());
    }
    auto work = c10::make_intrusive<AdapterWork>(getRank(), outputs, std::move(devices));
    operation.timeout = timeout_of(timeout);
    operation.signature.module = module_;
    operation.done = [work](const std::exception_ptr& error, int source) {
      work->complete(error, source);
    };
    engine_->submit(std::move(operation));
    return work;
  }

  // For as long as LibTorch uses it the group is not destroyed by its last handle.
  const sinew::ProcessGroup group_;
  const std::shared_ptr<GroupEngine> engine_;
  const c10::DeviceType device_;
  const std::int64_t module_;
};

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> make_c10d_adapter(const ProcessGroup& group,
                                                         c10::DeviceType device,
                                                         std::int64_t module) {
  auto adapter = c10::make_intrusive<C10dAdapter>(group, device, module);
#if TORCH_VERSION_MAJOR >= 2
  auto whole = c10::make_intrusive<c10d::ProcessGroup>(group.rank(), group.size());
  whole->setBackend(device, c10d::ProcessGroup::BackendType::CUSTOM, adapter);
  whole->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return whole;
#else
  return adapter;
#endif
}

}  // namespace sinew::internal
