#include "sinew/optim/internal/optimizer_parts.h"

#include <algorithm>

#include "sinew/optim/distributed_optimizer.h"
#include "sinew/optim/internal/copy_options.h"
#include "sinew/optim/internal/owned_tensors.h"

namespace sinew::internal {

using optim::ParameterGroup;

namespace {

/// What goes to one owner.
struct OwnerGroups {
  WorkerInfo owner;
  ParametersByGroup groups;
};

std::vector<OwnerGroups> split(const std::vector<ParameterGroup>& groups) {
  std::vector<RRef<at::Tensor>> parameters;
  // Of each of them: its group, and its number there.
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].options.check();
    for (std::size_t i = 0; i < groups[g].parameters.size(); ++i) {
      parameters.push_back(groups[g].parameters[i]);
      places.emplace_back(g, i);
    }
  }
  if (parameters.empty()) {
    throw RpcError(ErrorCode::kInvalidArgument, "an optimizer needs at least one parameter");
  }
  std::vector<OwnerGroups> owners;
  for (OwnedTensors& owned : by_owner(parameters, [&](std::size_t position) {
         const auto& [group, number] = places[position];
         return absl::StrFormat("parameter %d of group %d", number, group);
       })) {
    OwnerGroups& owner = owners.emplace_back();
    owner.owner = owned.owner;
    // All owners know all groups, so that a group has the same number everywhere.
    owner.groups.resize(groups.size());
    for (std::size_t i = 0; i < owned.tensors.size(); ++i) {
      const std::size_t group = places[owned.positions[i]].first;
      owner.groups[group].push_back(std::move(owned.tensors[i]));
    }
  }
  return owners;
}

const OptimizerPart* find_part(const std::vector<OptimizerPart>& parts, const WorkerInfo& owner) {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const OptimizerPart& one) {
    return one.owner.incarnation == owner.incarnation;
  });
  return found == parts.end() ? nullptr : &*found;
}

/// Parts of `before` stay where the owner is the same.
std::vector<OptimizerPart> make_missing_parts(const Worker& worker,
                                              const std::vector<OwnerGroups>& owners,
                                              const std::vector<ParameterGroup>& groups,
                                              const std::vector<OptimizerPart>& before,
                                              const CallOptions& call) {
  std::vector<Peer> missing;
  for (const OwnerGroups& owner : owners) {
    if (find_part(before, owner.owner) == nullptr) {
      missing.push_back(worker.peer(owner.owner).with(call));
    }
  }
  std::vector<optim::Options> options;
  for (const ParameterGroup& group : groups) options.push_back(group.options);
  const std::vector<std::vector<RRef<optim::Options>>> copies = copy_options(missing, options);
  std::vector<OptimizerPart> parts;
  std::size_t made = 0;
  for (const OwnerGroups& owner : owners) {
    if (const OptimizerPart* living = find_part(before, owner.owner)) {
      parts.push_back(*living);
      continue;
    }
    std::vector<OptimizerGroup> at_owner;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      at_owner.push_back({owner.groups[g], copies[made][g]});
    }
    parts.push_back(
        {owner.owner,
         missing[made++].remote<LocalOptimizer(std::vector<OptimizerGroup>)>(std::move(at_owner))});
  }
  std::exception_ptr first;
  for (const OptimizerPart& part : parts) {
    try {
      part.optimizer.created().wait();
    } catch (...) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
  return parts;
}

}  // namespace

std::vector<optim::ParameterGroup> one_group(std::vector<RRef<at::Tensor>> parameters,
                                             optim::Options options) {
  std::vector<optim::ParameterGroup> groups;
  groups.push_back({std::move(parameters), std::move(options)});
  return groups;
}

std::vector<OptimizerPart> make_parts(const Worker& worker,
                                      const std::vector<ParameterGroup>& groups,
                                      const CallOptions& call) {
  return make_missing_parts(worker, split(groups), groups, {}, call);
}

BoundParts rebind_parts(const Worker& worker, const std::vector<OptimizerPart>& before,
                        const std::vector<ParameterGroup>& groups, const CallOptions& call) {
  const std::vector<OwnerGroups> owners = split(groups);
  BoundParts bound;
  bound.parts = make_missing_parts(worker, owners, groups, before, call);
  for (const OptimizerPart& part : before) {
    // It would go on to take steps of the optimizer as it was.
    if (part.optimizer.peer().alive() && find_part(bound.parts, part.owner) == nullptr) {
      throw RpcError(ErrorCode::kInvalidArgument,
                     absl::StrFormat("worker '%s' lives and has parameters of the optimizer, but "
                                     "none of those that it is rebound to",
                                     part.owner.name));
    }
  }
  // Others may have rebound it, or begun to and died.
  for (const Binding& one : call_parts<&LocalOptimizer::binding>(bound.parts, call)) {
    bound.binding = std::max(bound.binding, one);
  }
  bound.binding = {bound.binding.number + 1, random_secret()};
  std::vector<Future<void>> told;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    told.push_back(start_part<&LocalOptimizer::bind>(
        bound.parts[i], call, bound.binding, std::optional<ParametersByGroup>(owners[i].groups)));
  }
  throw_if_any_failed(bound.parts, gather(told).take());
  return bound;
}

}  // namespace sinew::internal
