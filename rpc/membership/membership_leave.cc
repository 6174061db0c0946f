// The part of MembershipCore that leaves the job, and lets others leave.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/membership_core.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr nanoseconds kLeaveTimeout = seconds(5);
constexpr nanoseconds kLeaveRetry = milliseconds(100);

}  // namespace

void MembershipCore::handle_leave(const WorkerInfo& from, const std::string& body,
                                  const Answer& answer) {
  const absl::StatusOr<proto::LeaveRequest> request =
      parse_message<proto::LeaveRequest>("a LeaveRequest", body);
  if (!request.ok()) return fail(answer, request.status());
  const bool is_self = request->worker().name() == from.name &&
                       request->worker().incarnation() == from.incarnation.value;
  if (!is_self) {
    return fail(answer, absl::PermissionDeniedError(absl::StrCat(
                            "worker '", printable(from.name, 128), "' cannot leave for '",
                            printable(request->worker().name(), 128), "'")));
  }
  // It asks again: whoever let it go may be gone, and could not tell it.
  const bool takes_part = is_in() || is_leaving();
  if (takes_part && find_process(view_, from) == nullptr) return answer.set_value({});
  if (state_ != State::kCoordinating) {
    return fail(answer, absl::UnavailableError(absl::StrCat("worker '", self_.worker.name,
                                                            "' does not coordinate; ask again")));
  }
  const bool is_dropped = coordinator_->find(from) == nullptr;
  const std::uint64_t version = coordinator_->view().version + (is_dropped ? 0 : 1);
  // Only when the others know: they would take a worker that just vanishes for lost.
  answer_when_settled(version, from, answer);
  drop(from, Departure::kLeft);
}

Future<void> MembershipCore::leave_async(nanoseconds timeout) {
  const Promise<void> done(scheduler_.executor());
  const TimePoint deadline = deadline_after(scheduler_.now(), timeout);
  post([done, deadline](MembershipCore& core) { core.start_leave(deadline, done); });
  return done.future();
}

void MembershipCore::start_leave(TimePoint deadline, Promise<void> done) {
  if (is_leaving()) {
    left_->future().on_done([done](const Future<void>& left) {
      const std::exception_ptr error = left.error();
      error != nullptr ? done.set_error(error) : done.set_value();
    });
    return;
  }
  if (!is_in()) {
    fail_waiting(absl::UnavailableError("rank 0 leaves before all have joined"));
    if (state_ != State::kOut) fail_join(absl::CancelledError("this worker left while it joined"));
    done.set_value();
    return;
  }
  left_ = done;
  leave_deadline_ = deadline;
  settle(view_.version);
  coordinator_.reset();
  state_ = State::kLeaving;
  snapshot();
  end_all_suspicions();
  watch();
  after(deadline - scheduler_.now(), [](MembershipCore& core) {
    core.finish_leave(absl::DeadlineExceededError(absl::StrCat(
        "worker '", core.self_.worker.name, "' left, but could not tell all others in time")));
  });
  // First: who looks for the job from then on goes to those who stay.
  remove_from_file(self_.worker,
                   [](MembershipCore& core, const absl::Status&) { core.try_to_leave(); });
}

bool MembershipCore::is_alone() const {
  return std::all_of(view_.members.begin(), view_.members.end(), [this](const Member& member) {
    return member.worker == self_.worker || is_lost(member.worker);
  });
}

void MembershipCore::try_to_leave() {
  // Our own list without us is on its way: see check_left().
  if (state_ != State::kLeaving || find_process(view_, self_.worker) == nullptr) return;
  if (is_alone()) return finish_leave(absl::OkStatus());
  // When all leave at once, each in turn becomes the lowest, and its list makes the next one that.
  const Member* coordinator = lowest_alive();
  if (coordinator != nullptr && coordinator->worker != self_.worker) {
    leave_as_member(coordinator->worker);
  } else if (was_handed_over()) {
    leave_as_coordinator();
  } else {
    take_over();
  }
}

// The next one in the list goes on from a list without us; what matters is that it gets that list.
void MembershipCore::leave_as_coordinator() {
  MemberView next = ballot_.has_value() ? ballot_->latest() : without_lost(view_);
  std::vector<Member>& members = next.members;
  members.erase(std::remove_if(members.begin(), members.end(),
                               [&](const Member& member) { return member.worker == self_.worker; }),
                members.end());
  note_left(next, self_.worker.incarnation);
  ++next.version;
  ballot_.has_value() ? propose(next) : leave_with(next);
}

void MembershipCore::leave_with(MemberView list) {
  view_ = std::move(list);
  published_version_ = view_.version;
  publish();
  check_left();
}

void MembershipCore::leave_as_member(const WorkerInfo& coordinator) {
  proto::LeaveRequest request;
  request.mutable_worker()->set_name(self_.worker.name);
  request.mutable_worker()->set_rank(self_.worker.rank);
  request.mutable_worker()->set_incarnation(self_.worker.incarnation.value);
  const nanoseconds left = leave_deadline_ - scheduler_.now();
  call(coordinator, kLeaveMethod, request.SerializeAsString(),
       std::clamp(left, nanoseconds(1), kLeaveTimeout),
       [](MembershipCore& core, const absl::StatusOr<std::string>& reply) {
         if (reply.ok()) return core.finish_leave(absl::OkStatus());
         core.after(kLeaveRetry, [](MembershipCore& again) { again.try_to_leave(); });
       });
}

void MembershipCore::check_left() {
  if (state_ != State::kLeaving || published_version_ != view_.version) return;
  if (find_process(view_, self_.worker) != nullptr) return;
  for (const Member& member : view_.members) {
    const auto acknowledged = acknowledged_.find(member.worker.incarnation);
    const bool knows = acknowledged != acknowledged_.end() && acknowledged->second >= view_.version;
    if (!knows && !is_lost(member.worker)) return;
  }
  finish_leave(absl::OkStatus());
}

void MembershipCore::finish_leave(const absl::Status& status) {
  if (!is_leaving()) return;
  state_ = State::kOut;
  snapshot();
  if (status.ok()) {
    left_->set_value();
  } else {
    left_->set_error(make_error(status));
  }
}

}  // namespace sinew::internal
