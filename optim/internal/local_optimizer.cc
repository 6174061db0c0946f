#include "sinew/optim/internal/local_optimizer.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/optim/internal/change_queue.h"
#include "sinew/optim/internal/checkpoint_folder.h"
#include "sinew/optim/internal/optim_manager.h"
#include "sinew/optim/internal/optimizer_state.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rref/remote.h"

namespace sinew::internal {
namespace {

OptimManager& manager_of(const Worker& worker) {
  return *OptimManager::of(*WorkerAccess::services(worker));
}

/// The part's files in a folder.
CheckpointFolder folder_of(const OptimizerState& part, const std::string& folder) {
  return CheckpointFolder(manager_of(current_worker()).checkpoint_root(), folder, part.name());
}

}  // namespace

LocalOptimizer::LocalOptimizer(const std::vector<OptimizerGroup>& groups)
    : state_(std::make_shared<OptimizerState>(current_worker(), groups)),
      changes_(std::make_shared<ChangeQueue>()) {}

Future<StepAnswer> LocalOptimizer::step(const StepRequest& request) {
  const WorkerInfo& caller = CallContext::current().caller();
  // Else it could use up the numbers of another trainer's steps, or have them taken for given up.
  if (request.id.trainer != caller.incarnation.value) {
    throw RpcError(
        ErrorCode::kPermissionDenied,
        absl::StrFormat("worker '%s' asks for a step in another trainer's name", caller.name));
  }
  return state_->when_free<StepAnswer>(
      [request](OptimizerState& state, const Worker& worker, Clock::TimePoint deadline) {
        return state.step(worker, request, deadline);
      });
}

Future<Binding> LocalOptimizer::binding() {
  return state_->when_free<Binding>(
      [](OptimizerState& state, const Worker&, Clock::TimePoint) { return state.binding(); });
}

Future<void> LocalOptimizer::bind(const Binding& binding,
                                  const std::optional<ParametersByGroup>& groups) {
  return state_->when_free<void>(
      [binding, groups](OptimizerState& state, const Worker&, Clock::TimePoint) {
        state.bind(binding, groups);
      });
}

Future<void> LocalOptimizer::set_learning_rate(std::uint64_t group, double lr) {
  return state_->when_free<void>(
      [group, lr](OptimizerState& state, const Worker&, Clock::TimePoint) {
        return state.set_learning_rate(group, lr);
      });
}

Future<void> LocalOptimizer::set_options(std::uint64_t group, const RRef<optim::Options>& options) {
  return state_->when_free<void>([group, next = options.local_value()](
                                     OptimizerState& state, const Worker&, Clock::TimePoint) {
    return state.set_options(group, next);
  });
}

Future<optim::Options> LocalOptimizer::options(std::uint64_t group) {
  return state_->when_free<optim::Options>(
      [group](OptimizerState& state, const Worker&, Clock::TimePoint) {
        return state.options(group);
      });
}

Future<Unscaled> LocalOptimizer::unscale(const autograd::ContextId& context, double factor,
                                         std::uint64_t operation) {
  const ScaleRequest request{operation, CallContext::current().caller()};
  return state_->when_free<Unscaled>(
      [=](OptimizerState& state, const Worker& worker, Clock::TimePoint) {
        return unscale_gradients(worker, context, state.parameters(), factor, request);
      });
}

Future<void> LocalOptimizer::keep(const std::vector<RRef<at::Tensor>>& tensors) {
  std::vector<at::Tensor> values;
  for (const RRef<at::Tensor>& tensor : tensors) values.push_back(tensor.local_value());
  return state_->when_free<void>(
      [values](OptimizerState& state, const Worker&, Clock::TimePoint) { state.keep(values); });
}

std::vector<double> LocalOptimizer::initial_learning_rates() {
  return state_->initial_learning_rates();
}

CheckpointParts LocalOptimizer::checkpoints(const std::string& folder) {
  return folder_of(*state_, folder).parts();
}

std::uint64_t LocalOptimizer::next_checkpoint(const std::string& folder, std::uint64_t at_least) {
  const Worker worker = current_worker();
  return manager_of(worker).next_checkpoint(folder_of(*state_, folder).path(), at_least);
}

Future<void> LocalOptimizer::begin_save(const CheckpointPlace& place,
                                        const CheckpointNotes& notes) {
  const CheckpointFolder folder = folder_of(*state_, place.folder);
  using Saved = std::pair<CheckpointManifest, std::string>;
  const Future<Saved> copied =
      state_->when_free<Saved>([](OptimizerState& state, const Worker&, Clock::TimePoint) {
        return Saved(state.manifest(), state.serialize());
      });
  // Before the other continuation, so that the trainer can go on while the file is written.
  Future<void> begun = copied.then([](const Saved&) {});
  state_->pending_saves().add(place.id,
                              copied.then([folder, id = place.id, notes](const Saved& saved) {
                                CheckpointManifest manifest = saved.first;
                                manifest.number = id.number;
                                manifest.save = id.save;
                                manifest.notes = notes;
                                folder.write(std::move(manifest), saved.second);
                              }));
  return begun;
}

Future<void> LocalOptimizer::finish_save(const CheckpointId& id) {
  return state_->pending_saves().take(id);
}

void LocalOptimizer::forget_before(const std::string& folder, std::uint64_t number) {
  folder_of(*state_, folder).remove_before(number);
}

Future<CheckpointNotes> LocalOptimizer::prepare_load(const CheckpointPlace& place,
                                                     std::uint64_t load) {
  const CheckpointFolder folder = folder_of(*state_, place.folder);
  const CheckpointManifest manifest = folder.read_manifest(place.id.number);
  if (manifest.save != place.id.save) {
    throw RpcError(ErrorCode::kNotFound,
                   absl::StrFormat("'%s' is of another save", folder.data_path(place.id.number)));
  }
  folder.check_data(manifest);
  return state_->when_free<CheckpointNotes>(
      [folder, manifest, load](OptimizerState& state, const Worker&, Clock::TimePoint) {
        state.prepare_load(folder, manifest, load);
        return manifest.notes;
      });
}

Future<void> LocalOptimizer::apply_load(std::uint64_t load) {
  return state_->when_free<void>([load](OptimizerState& state, const Worker&, Clock::TimePoint) {
    return state.apply_load(load);
  });
}

Future<void> LocalOptimizer::drop_load(std::uint64_t load) {
  return state_->when_free<void>(
      [load](OptimizerState& state, const Worker&, Clock::TimePoint) { state.drop_load(load); });
}

std::uint64_t LocalOptimizer::stand_by() {
  const std::uint64_t stream = random_secret();
  changes_->begin(stream);
  return stream;
}

Future<void> LocalOptimizer::add_standby(const RRef<LocalOptimizer>& standby,
                                         std::uint64_t stream) {
  return state_
      ->when_free<OwnerMake>(
          [](OptimizerState& state, const Worker&, Clock::TimePoint) { return state.make(); })
      // Before the one that there is goes.
      .then([standby](const OwnerMake& make) {
        return standby.async<&LocalOptimizer::check_fits>(make);
      })
      .then([state = state_] {
        return state->when_free<void>([](OptimizerState& mine, const Worker&, Clock::TimePoint) {
          return mine.dismiss_standby();
        });
      })
      .then([state = state_, standby, stream] {
        return state->when_free<void>([standby, stream](OptimizerState& mine, const Worker& worker,
                                                        Clock::TimePoint deadline) {
          return mine.add_standby(worker, standby, stream, deadline);
        });
      });
}

Future<void> LocalOptimizer::check_fits(const OwnerMake& make) {
  return state_->when_free<void>(
      [make](OptimizerState& state, const Worker&, Clock::TimePoint) { state.check_fits(make); });
}

Future<FollowOutcome> LocalOptimizer::follow_snapshot(const ChangeId& id,
                                                      const OwnerSnapshot& snapshot) {
  return changes_->add(id, [state = state_, id, snapshot] {
    return state->when_free<FollowOutcome>(
        [id, snapshot](OptimizerState& mine, const Worker&, Clock::TimePoint) {
          return mine.follow(id, snapshot);
        });
  });
}

Future<FollowOutcome> LocalOptimizer::follow_step(const ChangeId& id, const MirroredStep& step) {
  return changes_->add(id, [state = state_, id, step] {
    return state->when_free<FollowOutcome>(
        [id, step](OptimizerState& mine, const Worker&, Clock::TimePoint) {
          return mine.follow(id, step);
        });
  });
}

Future<FollowOutcome> LocalOptimizer::follow_options(const ChangeId& id, std::uint64_t group,
                                                     const RRef<optim::Options>& options) {
  return changes_->add(id, [state = state_, id, group, next = options.local_value()] {
    return state->when_free<FollowOutcome>(
        [id, group, next](OptimizerState& mine, const Worker&, Clock::TimePoint) {
          return mine.follow(id, group, next);
        });
  });
}

Future<FollowOutcome> LocalOptimizer::dismiss(std::uint64_t stream) {
  return state_
      ->when_free<FollowOutcome>([stream](OptimizerState& state, const Worker&, Clock::TimePoint) {
        return state.dismiss(stream);
      })
      .then([changes = changes_, stream](FollowOutcome outcome) {
        // The changes that wait for others would wait without end.
        if (outcome == FollowOutcome::kFollowed) changes->end(stream);
        return outcome;
      });
}

Future<void> LocalOptimizer::take_over(const Binding& binding, std::uint64_t acknowledged) {
  return state_->when_free<void>(
      [binding, acknowledged](OptimizerState& state, const Worker&, Clock::TimePoint) {
        state.take_over(binding, acknowledged);
      });
}

}  // namespace sinew::internal
