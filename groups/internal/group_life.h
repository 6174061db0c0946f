#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sinew::internal {

/// Whether a group can be used, which operations are under way, and how they end: one place that
/// decides. Pure: no lock, no clock, no communication.
///
///     open --begin_failing--> failing --fail--> failed --destroy--> destroyed
///      |                         |                                     ^
///      +-------------------------+--------------destroy----------------+
///
/// While it is *failing*, it is found out why: operations that are under way are not told yet, and
/// none begins.
class GroupLife {
 public:
  enum class State { kOpen, kFailing, kFailed, kDestroyed };
  using OperationId = std::uint64_t;

  explicit GroupLife(std::string name) : name_(std::move(name)) {}

  State state() const { return state_; }
  /// Why it fails or has failed.
  const absl::Status& reason() const { return reason_; }
  std::size_t num_operations() const { return operations_.size(); }

  /// kFailedPrecondition, with the reason, unless the group is open.
  absl::Status check_open() const;
  /// An operation is about to begin. Errors as check_open().
  absl::StatusOr<OperationId> begin();
  /// The operation has ended by itself. True: this is its end, and it can be told; false: it had
  /// ended before.
  bool end(OperationId id);

  /// Something is wrong with the group for good. True: the caller is the first to know, and calls
  /// fail() once it knows more. False: another caller does so, or the group is over.
  bool begin_failing(const absl::Status& reason);
  /// What has to end with that reason: everything under way. The first reason counts.
  std::vector<OperationId> fail(const absl::Status& reason);
  /// What has to end with kCancelled: everything under way. Idempotent.
  std::vector<OperationId> destroy();

 private:
  std::vector<OperationId> end_all();

  const std::string name_;
  State state_ = State::kOpen;
  absl::Status reason_;
  OperationId last_id_ = 0;
  std::set<OperationId> operations_;
};

}  // namespace sinew::internal
