#include "sinew/optim/distributed_optimizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/optim/internal/checkpoint_round.h"
#include "sinew/optim/internal/copy_options.h"
#include "sinew/optim/internal/distributed_optimizer_impl.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/optim/internal/optimizer_parts.h"
#include "sinew/optim/internal/owned_tensors.h"
#include "sinew/rref/remote.h"

namespace sinew::optim {

using internal::BoundParts;
using internal::LocalOptimizer;
using internal::OptimizerGroup;
using internal::OptimizerPart;
using internal::OwnedTensors;

const std::vector<OptimizerPart>& DistributedOptimizer::Impl::parts_with(std::size_t group) const {
  if (group < groups) return parts;
  throw RpcError(
      ErrorCode::kInvalidArgument,
      absl::StrFormat("there is no group %d: the optimizer has %d, counted from 0", group, groups));
}

// ---- Making one.

DistributedOptimizer::DistributedOptimizer(const Worker& worker,
                                           std::vector<RRef<at::Tensor>> parameters,
                                           Options options, const CallOptions& call)
    : DistributedOptimizer(worker, internal::one_group(std::move(parameters), std::move(options)),
                           call) {}

DistributedOptimizer::DistributedOptimizer(const Worker& worker, std::vector<ParameterGroup> groups,
                                           const CallOptions& call)
    : impl_(std::make_shared<Impl>(worker,
                                   BoundParts{internal::make_parts(worker, groups, call), {}},
                                   groups.size(), random_secret())) {}

DistributedOptimizer DistributedOptimizer::rebind(std::vector<RRef<at::Tensor>> parameters,
                                                  Options options, const CallOptions& call) const {
  return rebind(internal::one_group(std::move(parameters), std::move(options)), call);
}

DistributedOptimizer DistributedOptimizer::rebind(const std::vector<ParameterGroup>& groups,
                                                  const CallOptions& call) const {
  const Impl& impl = checked();
  return DistributedOptimizer(std::make_shared<Impl>(
      impl.worker, internal::rebind_parts(impl.worker, impl.parts, groups, call), groups.size(),
      impl.identity));
}

DistributedOptimizer::Impl& DistributedOptimizer::checked() const {
  if (impl_ == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition, "this DistributedOptimizer is empty");
  }
  return *impl_;
}

const std::vector<WorkerInfo>& DistributedOptimizer::owners() const { return checked().owners; }
std::size_t DistributedOptimizer::group_count() const { return checked().groups; }

// ---- What all owners are asked for.

void DistributedOptimizer::set_learning_rate(double lr, const CallOptions& options) const {
  for (std::size_t group = 0; group < group_count(); ++group) {
    set_learning_rate(group, lr, options);
  }
}

void DistributedOptimizer::set_learning_rate(std::size_t group, double lr,
                                             const CallOptions& options) const {
  internal::call_parts<&LocalOptimizer::set_learning_rate>(checked().parts_with(group), options,
                                                           static_cast<std::uint64_t>(group), lr);
}

void DistributedOptimizer::set_options(std::size_t group, const Options& options,
                                       const CallOptions& call) const {
  options.check();
  const std::vector<OptimizerPart>& parts = checked().parts_with(group);
  std::vector<Peer> owners;
  for (const OptimizerPart& part : parts) owners.push_back(part.optimizer.peer().with(call));
  const auto copies = internal::copy_options(owners, {options});
  std::vector<Future<void>> told;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    told.push_back(internal::start_part<&LocalOptimizer::set_options>(
        parts[i], call, static_cast<std::uint64_t>(group), copies[i].front()));
  }
  internal::throw_if_any_failed(parts, internal::gather(told).take());
}

RRef<Options> DistributedOptimizer::options_at_owner(std::size_t group,
                                                     const CallOptions& call) const {
  return checked().parts_with(group).front().optimizer.with(call).remote<&LocalOptimizer::options>(
      static_cast<std::uint64_t>(group));
}

std::vector<double> DistributedOptimizer::initial_learning_rates(const CallOptions& options) const {
  // All owners know all groups.
  return checked()
      .parts.front()
      .optimizer.with(options)
      .call<&LocalOptimizer::initial_learning_rates>();
}

void DistributedOptimizer::keep(const std::vector<RRef<at::Tensor>>& tensors,
                                const CallOptions& options) const {
  Impl& impl = checked();
  std::vector<std::pair<const OptimizerPart*, OwnedTensors>> kept;
  for (OwnedTensors& owned : internal::by_owner(tensors, [](std::size_t i) {
         return absl::StrFormat("tensor %d of those to keep", i);
       })) {
    const auto part = std::find_if(
        impl.parts.begin(), impl.parts.end(),
        [&](const OptimizerPart& one) { return one.owner.incarnation == owned.owner.incarnation; });
    if (part == impl.parts.end()) {
      throw RpcError(ErrorCode::kInvalidArgument,
                     absl::StrFormat("tensor %d of those to keep is at worker '%s', which has no "
                                     "parameters of the optimizer",
                                     owned.positions.front(), owned.owner.name));
    }
    kept.emplace_back(&*part, std::move(owned));
  }
  std::vector<Future<void>> told;
  for (const auto& [part, owned] : kept) {
    told.push_back(part->optimizer.with(options).async<&LocalOptimizer::keep>(owned.tensors));
  }
  collect_all(told).wait();
}

Checkpoint DistributedOptimizer::save(const std::string& folder, const SaveOptions& how,
                                      const CallOptions& options) const {
  return save_async(folder, how, options).take();
}

Future<Checkpoint> DistributedOptimizer::save_async(const std::string& folder,
                                                    const SaveOptions& how,
                                                    const CallOptions& options) const {
  const Impl& impl = checked();
  return internal::CheckpointRound(impl.worker, impl.parts, folder, options).save(how);
}

Checkpoint DistributedOptimizer::load(const std::string& folder, const CallOptions& options) const {
  const Impl& impl = checked();
  return internal::CheckpointRound(impl.worker, impl.parts, folder, options).load(std::nullopt);
}

Checkpoint DistributedOptimizer::load(const std::string& folder, std::uint64_t number,
                                      const CallOptions& options) const {
  const Impl& impl = checked();
  return internal::CheckpointRound(impl.worker, impl.parts, folder, options).load(number);
}

}  // namespace sinew::optim

namespace sinew {

using optim::DistributedOptimizer;

void Codec<DistributedOptimizer>::encode(ValueWriter& writer,
                                         const DistributedOptimizer& optimizer) {
  if (!optimizer.valid()) {
    throw RpcError(ErrorCode::kInvalidArgument, "an empty DistributedOptimizer cannot be passed");
  }
  ListWriter list = writer.list(optimizer.impl()->parts.size() + 3);
  list.next().natural(optimizer.impl()->groups);
  list.next().natural(optimizer.impl()->identity);
  ValueWriter binding = list.next();
  Codec<internal::Binding>::encode(binding, optimizer.impl()->binding);
  for (const auto& part : optimizer.impl()->parts) {
    ValueWriter reference = list.next();
    Codec<RRef<internal::LocalOptimizer>>::encode(reference, part.optimizer);
  }
}

DistributedOptimizer Codec<DistributedOptimizer>::decode(const ValueReader& reader) {
  const ListReader list = reader.list();
  if (list.size() < 4) reader.fail("an optimizer has at least one owner");
  const std::uint64_t groups = list.item(0).natural();
  const std::uint64_t identity = list.item(1).natural();
  internal::BoundParts bound;
  bound.binding = Codec<internal::Binding>::decode(list.item(2));
  for (std::size_t i = 3; i < list.size(); ++i) {
    auto reference = Codec<RRef<internal::LocalOptimizer>>::decode(list.item(i));
    if (!reference.valid()) reader.fail("an owner's part is an empty reference");
    bound.parts.push_back({reference.owner(), std::move(reference)});
  }
  const Worker worker = bound.parts.front().optimizer.peer().worker();
  return DistributedOptimizer(
      std::make_shared<DistributedOptimizer::Impl>(worker, std::move(bound), groups, identity));
}

}  // namespace sinew
