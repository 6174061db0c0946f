#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/gather.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/membership/registry.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {

/// Has `self` join.
using StartRegistry = std::function<absl::StatusOr<std::shared_ptr<Registry>>(
    const registry::Record& self, Registry::Listener listener)>;

struct MembershipAndGather {
  std::shared_ptr<Membership> membership;
  std::shared_ptr<Gather> gather;
};

/// What a worker needs of its job, made of a registry. No options' function is called after
/// close().
MembershipAndGather make_registry_membership(MembershipOptions options, StartRegistry start,
                                             Directory& directory, Scheduler& scheduler);

}  // namespace sinew::internal
