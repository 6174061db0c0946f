#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/membership_state.h"
#include "sinew/rpc/membership/registry/registry_messages.h"

namespace sinew::internal {

/// Who holds the list of a job's members, as one worker sees it: the list, and gathers. It
/// joins when it is made.
///
/// Thread-safe. Callbacks come one after the other, on a thread of the registry's own; they must
/// not block.
class Registry {
 public:
  using Time = std::chrono::nanoseconds;
  using Values = std::vector<std::string>;
  using OnGathered = absl::AnyInvocable<void(absl::StatusOr<Values>)>;

  struct Listener {
    /// From kMember on.
    std::function<void(const registry::MemberNews&)> on_member;
    /// kSuspected: the registrar does not answer. A join that failed ends in kLeft.
    std::function<void(MembershipState, const absl::Status&)> on_state;
  };
  struct View {
    MembershipState state = MembershipState::kJoining;
    /// With this worker, by incarnation.
    std::vector<registry::Record> members;
    JobInstance instance;
    /// Of a fixed world, by rank: which worker had it when all had joined.
    std::vector<std::string> world_names;
  };

  virtual ~Registry() = default;

  virtual View view() const = 0;
  /// Done with kLeft, within two seconds.
  virtual void leave() = 0;
  /// Ends it at once; the others are told, for which this waits, `patience` at most. No callback
  /// comes afterwards. Not in a callback.
  virtual void give_up(Time patience) = 0;
  /// Asks whether this worker is in still. `then` runs once that is known, and told if it is not,
  /// or when `patience` is over.
  virtual void when_sure(Time patience, std::function<void()> then) = 0;
  /// This worker's link with that member has ended permanently. `has_ended`: so has its process,
  /// for certain.
  virtual void report_lost(Incarnation member, std::string reason, bool has_ended) = 0;

  /// Values in the order of the sorted names; no names: of all who are members when it completes.
  /// While the registrar is away the former fail at once (is_away()), the latter after 20 leases.
  virtual void gather(const std::string& key, std::vector<std::string> names, std::string value,
                      Time timeout, OnGathered then) = 0;
  /// Ends those that name that worker here, with `why`.
  virtual void end_gathers_with(const std::string& worker, absl::Status why) = 0;
  /// Ends all of them.
  virtual void end_gathers(absl::Status why, std::function<void()> then) = 0;
};

}  // namespace sinew::internal
