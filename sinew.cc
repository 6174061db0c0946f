#include "sinew/sinew.h"

#include <utility>

#include "sinew/autograd/internal/autograd_manager.h"
#include "sinew/groups/internal/groups_manager.h"
#include "sinew/optim/internal/optim_manager.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/worker/worker_parts.h"
#include "sinew/rref/internal/names_manager.h"
#include "sinew/rref/internal/reference_manager.h"

namespace sinew {

Worker init_rpc(WorkerOptions options) {
  auto& layers = internal::parts_of(options).extensions;
  layers.insert(
      layers.begin(),
      {[](internal::WorkerServices& services) {
         return internal::ReferenceManager::make(services);
       },
       [](internal::WorkerServices& services) { return internal::NamesManager::make(services); },
       [](internal::WorkerServices& services) { return internal::AutogradManager::make(services); },
       [](internal::WorkerServices& services) { return internal::OptimManager::make(services); },
       [](internal::WorkerServices& services) { return internal::GroupsManager::make(services); }});
  return Worker::start(std::move(options));
}

Worker init_rpc(std::string name, MethodTable methods) {
  WorkerOptions options;
  options.name = std::move(name);
  options.methods = std::move(methods);
  return init_rpc(std::move(options));
}

}  // namespace sinew
