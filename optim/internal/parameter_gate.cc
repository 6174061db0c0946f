#include "sinew/optim/internal/parameter_gate.h"

#include <iterator>
#include <utility>

namespace sinew::internal {

bool ParameterGate::claim(const std::vector<const void*>& parameters,
                          absl::flat_hash_set<const void*>& taken) {
  bool free = true;
  for (const void* parameter : parameters) free = free && !taken.contains(parameter);
  taken.insert(parameters.begin(), parameters.end());
  return free;
}

void ParameterGate::run(std::vector<const void*> parameters, Task work) {
  {
    MutexLock lock(mutex_);
    absl::flat_hash_set<const void*> taken = held_;
    // What waits goes first, so that much work on few parameters cannot starve one piece on many.
    for (const Waiting& other : waiting_) claim(other.parameters, taken);
    if (!claim(parameters, taken)) {
      waiting_.push_back({std::move(parameters), std::move(work)});
      return;
    }
    held_.insert(parameters.begin(), parameters.end());
  }
  run_now(parameters, std::move(work));
}

void ParameterGate::run_now(const std::vector<const void*>& parameters, Task work) {
  std::move(work)();
  // With what it holds, before others see the parameters.
  work = nullptr;
  leave(parameters);
}

void ParameterGate::leave(const std::vector<const void*>& parameters) {
  Queue ready;
  {
    MutexLock lock(mutex_);
    for (const void* parameter : parameters) held_.erase(parameter);
    absl::flat_hash_set<const void*> taken = held_;
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      const auto next = std::next(at);
      if (claim(at->parameters, taken)) {
        held_.insert(at->parameters.begin(), at->parameters.end());
        ready.splice(ready.end(), waiting_, at);
      }
      at = next;
    }
  }
  for (Waiting& one : ready) {
    runner_->post([self = shared_from_this(), mine = std::move(one.parameters),
                   work = std::move(one.work)]() mutable { self->run_now(mine, std::move(work)); });
  }
}

}  // namespace sinew::internal
