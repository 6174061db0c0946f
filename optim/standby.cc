#include "sinew/optim/standby.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/optim/internal/distributed_optimizer_impl.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/optim/internal/optimizer_parts.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rref/remote.h"

namespace sinew::optim {

using internal::Binding;
using internal::LocalOptimizer;
using internal::OptimizerPart;

struct Standby::Impl {
  std::uint64_t optimizer = 0;
  std::string owner;
  Incarnation owner_incarnation;
  RRef<LocalOptimizer> part;
};

const Standby::Impl& Standby::impl() const {
  if (impl_ == nullptr) throw RpcError(ErrorCode::kFailedPrecondition, "this Standby is empty");
  return *impl_;
}

const std::string& Standby::owner() const { return impl().owner; }
WorkerInfo Standby::worker() const { return impl().part.owner(); }
bool Standby::alive() const { return impl().part.peer().alive(); }

namespace {

DistributedOptimizer::Impl& impl_of(const DistributedOptimizer& optimizer) {
  if (!optimizer.valid()) {
    throw RpcError(ErrorCode::kFailedPrecondition, "this DistributedOptimizer is empty");
  }
  return *optimizer.impl();
}

}  // namespace

Standby::Standby(const DistributedOptimizer& optimizer, std::string_view owner,
                 std::vector<RRef<at::Tensor>> parameters, Options options, const CallOptions& call)
    : Standby(optimizer, owner, internal::one_group(std::move(parameters), std::move(options)),
              call) {}

Standby::Standby(const DistributedOptimizer& optimizer, std::string_view owner,
                 const std::vector<ParameterGroup>& groups, const CallOptions& call) {
  const DistributedOptimizer::Impl& of = impl_of(optimizer);
  const auto part = std::find_if(of.parts.begin(), of.parts.end(),
                                 [&](const OptimizerPart& one) { return one.owner.name == owner; });
  if (part == of.parts.end()) {
    throw RpcError(
        ErrorCode::kInvalidArgument,
        absl::StrFormat("worker '%s' has no parameters of the optimizer, so it needs no standby",
                        owner));
  }
  std::vector<OptimizerPart> standby = internal::make_parts(of.worker, groups, call);
  if (standby.size() != 1) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("the standby of worker '%s' is one worker, and these parameters "
                                   "are at %d",
                                   owner, standby.size()));
  }
  for (const OptimizerPart& one : of.parts) {
    if (one.owner.incarnation != standby.front().owner.incarnation) continue;
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("worker '%s' has parameters of the optimizer itself, so it "
                                   "cannot be the standby of worker '%s'",
                                   one.owner.name, owner));
  }
  const RRef<LocalOptimizer>& spare = standby.front().optimizer;
  part->optimizer.with(call).call<&LocalOptimizer::add_standby>(
      spare, spare.with(call).call<&LocalOptimizer::stand_by>());
  impl_ = std::make_shared<const Impl>(Impl{of.identity, part->owner.name, part->owner.incarnation,
                                            std::move(standby.front().optimizer)});
}

DistributedOptimizer take_over(const DistributedOptimizer& optimizer,
                               const std::vector<Standby>& standbys, const CallOptions& call) {
  const DistributedOptimizer::Impl& impl = impl_of(optimizer);
  internal::BoundParts bound{impl.parts, impl.binding};
  std::vector<const Standby*> of_part(bound.parts.size());
  for (const Standby& standby : standbys) {
    const Standby::Impl& one = standby.impl();
    const auto part = std::find_if(
        impl.parts.begin(), impl.parts.end(),
        [&](const OptimizerPart& each) { return each.owner.incarnation == one.owner_incarnation; });
    if (one.optimizer != impl.identity || part == impl.parts.end()) {
      throw RpcError(
          ErrorCode::kInvalidArgument,
          absl::StrFormat("the standby '%s' is of worker '%s', which has no part of this "
                          "optimizer (any more)",
                          one.part.owner().name, one.owner));
    }
    const auto position = static_cast<std::size_t>(part - impl.parts.begin());
    of_part[position] = &standby;
    bound.parts[position] = {one.part.owner(), one.part};
  }
  // Others may have bound it, or begun to and died.
  for (const Binding& one : internal::call_parts<&LocalOptimizer::binding>(bound.parts, call)) {
    bound.binding = std::max(bound.binding, one);
  }
  bound.binding = {bound.binding.number + 1, random_secret()};
  std::vector<Future<void>> told;
  for (std::size_t i = 0; i < bound.parts.size(); ++i) {
    const OptimizerPart& part = bound.parts[i];
    if (of_part[i] == nullptr) {
      told.push_back(internal::start_part<&LocalOptimizer::bind>(
          part, call, bound.binding, std::optional<internal::ParametersByGroup>()));
      continue;
    }
    const Incarnation replaced = impl.parts[i].owner.incarnation;
    told.push_back(internal::start_part<&LocalOptimizer::take_over>(
        part, call, bound.binding, impl.numbers->acknowledged(replaced)));
  }
  internal::throw_if_any_failed(bound.parts, internal::gather(told).take());
  return DistributedOptimizer(std::make_shared<DistributedOptimizer::Impl>(
      impl.worker, std::move(bound), impl.groups, impl.identity));
}

StepReport repeat(const DistributedOptimizer& optimizer, const PartialStep& step,
                  const autograd::Context& context, const CallOptions& options) {
  return impl_of(optimizer).repeat(step, context.id(), options);
}

}  // namespace sinew::optim

namespace sinew {

using optim::Standby;

void Codec<Standby>::encode(ValueWriter& writer, const Standby& standby) {
  if (!standby.valid()) {
    throw RpcError(ErrorCode::kInvalidArgument, "an empty Standby cannot be passed");
  }
  const Standby::Impl& impl = standby.impl();
  ListWriter list = writer.list(4);
  list.next().natural(impl.optimizer);
  ValueWriter owner = list.next();
  Codec<std::string>::encode(owner, impl.owner);
  list.next().natural(impl.owner_incarnation.value);
  ValueWriter part = list.next();
  Codec<RRef<internal::LocalOptimizer>>::encode(part, impl.part);
}

Standby Codec<Standby>::decode(const ValueReader& reader) {
  const ListReader list = reader.list();
  if (list.size() != 4) reader.fail("a standby has four fields");
  Standby::Impl impl;
  impl.optimizer = list.item(0).natural();
  impl.owner = Codec<std::string>::decode(list.item(1));
  impl.owner_incarnation = Incarnation{list.item(2).natural()};
  impl.part = Codec<RRef<internal::LocalOptimizer>>::decode(list.item(3));
  if (!impl.part.valid()) reader.fail("a standby's part is an empty reference");
  return Standby(std::make_shared<const Standby::Impl>(std::move(impl)));
}

}  // namespace sinew
