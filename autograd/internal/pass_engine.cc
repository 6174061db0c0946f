#include "sinew/autograd/internal/pass_engine.h"

#include <memory>
#include <utility>

#include <torch/csrc/autograd/engine.h>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/thread_context.h"

namespace sinew::internal {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// A pass whose nodes this thread runs. Other work that it does meanwhile, while a node waits, has
/// another ThreadContext.
struct Running {
  std::shared_ptr<const ThreadContext> work;
};
thread_local const Running* running = nullptr;

class RunningScope {
 public:
  RunningScope() : before_(std::exchange(running, &now_)) {}
  ~RunningScope() { running = before_; }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  const Running now_{ThreadContext::current()};
  const Running* const before_;
};

/// Stands before the engine that there was.
class WatchedEngine final : public Engine {
 public:
  explicit WatchedEngine(Engine& engine) : engine_(engine) {}

  Engine& engine() const { return engine_; }

  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph,
                        bool create_graph, bool accumulate_grad,
                        const edge_list& outputs) override {
    const bool is_within = running != nullptr && running->work == ThreadContext::current();
    if (is_within && accumulate_grad && outputs.empty()) {
      throw RpcError(
          ErrorCode::kFailedPrecondition,
          "a function calls backward() in its own backward(), within a backward pass of an "
          "autograd context: what that brings to leaves would be in .grad, and not in the context. "
          "Call torch::autograd::grad() for the function's inputs, its parameters among them, and "
          "return what it yields");
    }
    return engine_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, std::shared_ptr<Node> root,
      torch::autograd::InputBuffer&& inputs) override {
    return engine_.execute_with_graph_task(task, std::move(root), std::move(inputs));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return engine_.make_anomaly_metadata();
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return engine_.get_default_saved_variable_hooks();
  }

 private:
  Engine& engine_;
};

// Never destroyed: LibTorch may ask for it until the process ends.
const WatchedEngine& watched_engine() {
  static const WatchedEngine* const watched = [] {
    static auto* const made = new WatchedEngine(Engine::get_default_engine());
    torch::autograd::set_default_engine_stub([]() -> Engine& { return *made; });
    return made;
  }();
  return *watched;
}

}  // namespace

variable_list run_in_pass(const edge_list& roots, const variable_list& inputs, bool keep_graph,
                          bool accumulate, const edge_list& outputs) {
  Engine& engine = watched_engine().engine();
  const RunningScope scope;
  constexpr bool kCreateGraph = false;
  return engine.execute(roots, inputs, keep_graph, kCreateGraph, accumulate, outputs);
}

}  // namespace sinew::internal
