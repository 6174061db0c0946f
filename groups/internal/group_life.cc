#include "sinew/groups/internal/group_life.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sinew::internal {

absl::Status GroupLife::check_open() const {
  switch (state_) {
    case State::kOpen:
      return absl::OkStatus();
    case State::kFailing:
    case State::kFailed:
      return absl::FailedPreconditionError(
          absl::StrCat("the group '", name_, "' has failed before: ", reason_.message(),
                       ". Destroy it, and make it anew with the ranks that are left"));
    case State::kDestroyed:
      break;
  }
  return absl::FailedPreconditionError(absl::StrCat("the group '", name_, "' is destroyed"));
}

absl::StatusOr<GroupLife::OperationId> GroupLife::begin() {
  const absl::Status open = check_open();
  if (!open.ok()) return open;
  operations_.insert(++last_id_);
  return last_id_;
}

bool GroupLife::end(OperationId id) { return operations_.erase(id) > 0; }

bool GroupLife::begin_failing(const absl::Status& reason) {
  if (state_ != State::kOpen) return false;
  state_ = State::kFailing;
  reason_ = reason;
  return true;
}

std::vector<GroupLife::OperationId> GroupLife::fail(const absl::Status& reason) {
  if (state_ != State::kOpen && state_ != State::kFailing) return {};
  state_ = State::kFailed;
  reason_ = reason;
  return end_all();
}

std::vector<GroupLife::OperationId> GroupLife::destroy() {
  state_ = State::kDestroyed;
  return end_all();
}

std::vector<GroupLife::OperationId> GroupLife::end_all() {
  const std::set<OperationId> ended = std::exchange(operations_, {});
  return {ended.begin(), ended.end()};
}

}  // namespace sinew::internal
