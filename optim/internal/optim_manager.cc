#include "sinew/optim/internal/optim_manager.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/optim/checkpoint.h"
#include "sinew/optim/internal/built_in_optimizers.h"
#include "sinew/optim/internal/gradient_norms.h"
#include "sinew/optim/internal/layer.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/optim/internal/weights_messages.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/calls/serve.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMaxNumberedFolders = 4096;

template <auto Function>
Extension::Method method() {
  return {MethodName<Function>::value, &serve_method<Function>};
}

}  // namespace

std::shared_ptr<Extension> make_optim(WorkerServices& services) {
  return OptimManager::make(services);
}

std::shared_ptr<OptimManager> OptimManager::make(WorkerServices& services) {
  return std::shared_ptr<OptimManager>(new OptimManager(services));
}

std::shared_ptr<OptimManager> OptimManager::of(const WorkerServices& services) {
  return require_layer<OptimManager>(services, "optim");
}

OptimManager::OptimManager(WorkerServices& services)
    : worker_(services.options().name),
      gate_(std::make_shared<ParameterGate>(services.executor()->runner())) {}

void OptimManager::raise_order(std::uint64_t order) {
  std::uint64_t now = order_.load();
  while (now < order && !order_.compare_exchange_weak(now, order)) {
  }
}

void OptimManager::set_checkpoint_root(std::string root) {
  MutexLock lock(mutex_);
  root_ = std::move(root);
}

std::string OptimManager::checkpoint_root() const {
  MutexLock lock(mutex_);
  if (root_.empty()) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   absl::StrFormat("worker '%s' serves no checkpoints: its program has to call "
                                   "sinew::optim::serve_checkpoints(folder)",
                                   worker_));
  }
  return root_;
}

std::uint64_t OptimManager::next_checkpoint(const std::string& folder, std::uint64_t at_least) {
  MutexLock lock(mutex_);
  // Names come from other workers. A number that is used again is refused when it is written.
  if (numbered_.size() >= kMaxNumberedFolders) numbered_.clear();
  std::uint64_t& last = numbered_[folder];
  return last = std::max(last + 1, at_least);
}

void OptimManager::add_counters(Counters& counters) const {
  counters["optim.optimizers"] = optimizers_;
  counters["optim.answers"] = step_answers_;
  counters["optim.steps"] = static_cast<std::int64_t>(applied_.load());
}

std::vector<Extension::Method> OptimManager::methods() const {
  using Make = LocalOptimizer(std::vector<OptimizerGroup>);
  std::vector<Method> methods = built_in_optimizer_methods();
  methods.insert(methods.end(), {{ConstructorName<Make>::value, &serve_constructor<Make>},
                                 method<&LocalOptimizer::step>(),
                                 method<&LocalOptimizer::binding>(),
                                 method<&LocalOptimizer::bind>(),
                                 method<&LocalOptimizer::set_learning_rate>(),
                                 method<&LocalOptimizer::set_options>(),
                                 method<&LocalOptimizer::options>(),
                                 method<&LocalOptimizer::unscale>(),
                                 method<&LocalOptimizer::initial_learning_rates>(),
                                 method<&LocalOptimizer::checkpoints>(),
                                 method<&LocalOptimizer::next_checkpoint>(),
                                 method<&LocalOptimizer::begin_save>(),
                                 method<&LocalOptimizer::finish_save>(),
                                 method<&LocalOptimizer::forget_before>(),
                                 method<&LocalOptimizer::prepare_load>(),
                                 method<&LocalOptimizer::apply_load>(),
                                 method<&LocalOptimizer::drop_load>(),
                                 method<&LocalOptimizer::keep>(),
                                 method<&LocalOptimizer::add_standby>(),
                                 method<&LocalOptimizer::stand_by>(),
                                 method<&LocalOptimizer::check_fits>(),
                                 method<&LocalOptimizer::follow_snapshot>(),
                                 method<&LocalOptimizer::follow_step>(),
                                 method<&LocalOptimizer::follow_options>(),
                                 method<&LocalOptimizer::dismiss>(),
                                 method<&LocalOptimizer::take_over>(),
                                 method<&gradient_power_sum>(),
                                 method<&scale_gradients_of>(),
                                 method<&largest_of_ranks>(),
                                 method<&WeightsWriter::ask>(),
                                 method<&WeightsWriter::leave>(),
                                 method<&WeightsSnapshot::read>(),
                                 method<&WeightsSnapshot::changes>()});
  return methods;
}

Future<std::vector<std::string>> OptimManager::drain_async(DrainScope, Clock::TimePoint) {
  return make_ready_future(std::vector<std::string>());
}

}  // namespace sinew::internal

namespace sinew {

void optim::serve_checkpoints(const std::string& root) {
  serve_checkpoints(current_worker(), root);
}

void optim::serve_checkpoints(const Worker& worker, const std::string& root) {
  if (!worker.valid()) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "this Worker is empty: start one with sinew::init_rpc()");
  }
  if (root.empty() || !std::filesystem::is_directory(root)) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("'%s' is no folder: make it before checkpoints are served from "
                                   "there",
                                   root));
  }
  internal::OptimManager::of(*WorkerAccess::services(worker))
      ->set_checkpoint_root(std::filesystem::absolute(root).string());
}

}  // namespace sinew
