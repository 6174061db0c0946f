// The part of MembershipCore that hears of losses: those of its own links, those that others tell
// the coordinator of, and those that no link notices.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/membership_bugs.h"
#include "sinew/rpc/membership/membership_core.h"

namespace sinew::internal {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr nanoseconds kReportTimeout = seconds(5);
constexpr nanoseconds kReportPause = std::chrono::milliseconds(500);
// How often in a row a member with which there is no link is asked in vain before it is lost: as
// long as a lease lasts. An address that refuses counts for more.
constexpr int kMostAskedInVain = 5;
constexpr int kRefusalCounts = 2;
// Longer than a worker waits for the answer that it is in (kSettleTime).
constexpr nanoseconds kJoinsFor = seconds(4);

proto::WorkerIdentity identity_message(const WorkerInfo& worker) {
  proto::WorkerIdentity identity;
  identity.set_name(worker.name);
  identity.set_rank(worker.rank);
  identity.set_incarnation(worker.incarnation.value);
  return identity;
}

}  // namespace

void MembershipCore::on_worker_lost(const WorkerInfo& worker, Proof proof, std::string reason) {
  post([worker, proof, reason = std::move(reason)](MembershipCore& core) {
    if (proof == Proof::kEnded) core.note_dead(worker.incarnation);
    core.lose(worker, reason);
  });
}

std::string MembershipCore::why_lost(const WorkerInfo& worker) const {
  const auto found = lost_.find(worker.incarnation);
  if (found == lost_.end() || found->second.empty()) return "";
  return absl::StrCat(found->second, " (says worker '", self_.worker.name, "')");
}

void MembershipCore::lose(const WorkerInfo& worker, const std::string& reason) {
  if (worker.incarnation == self_.worker.incarnation) return;
  switch (state_) {
    case State::kCollecting:
    case State::kCoordinating:
      // On the list until there is another one.
      if (find_process(view_, worker) != nullptr) lost_.emplace(worker.incarnation, reason);
      snapshot();
      drop(worker, Departure::kLost);
      return;
    case State::kMember:
    case State::kTakingOver:
    case State::kLeaving:
      if (find_process(view_, worker) == nullptr) return;
      lost_.emplace(worker.incarnation, reason);
      awaited_.erase(worker.incarnation);
      snapshot();
      report_lost(worker);
      elect();
      finish_take_over();
      check_settled();
      check_left();
      return;
    case State::kIdle:
    case State::kSeeking:
    case State::kPausing:
    case State::kOut:
      return;
  }
}

// ---- Two that have lost each other alone.

// They never talk again, so one of them has to go.
void MembershipCore::report_lost(const WorkerInfo& worker) {
  const Member* coordinator = lowest_alive();
  if (!is_in() || coordinator == nullptr || coordinator->worker == self_.worker) return;
  call(coordinator->worker, "sinew.member.lost", identity_message(worker).SerializeAsString(),
       kReportTimeout, [worker](MembershipCore& core, const absl::StatusOr<std::string>& reply) {
         if (reply.ok()) return;
         core.after(kReportPause, [worker](MembershipCore& again) {
           if (find_process(again.view_, worker) != nullptr) again.report_lost(worker);
         });
       });
}

bool MembershipCore::was_lost(const WorkerInfo& worker) const {
  return std::any_of(gone_.begin(), gone_.end(), [&](const GoneMember& gone) {
    return gone.how == Departure::kLost && gone.member.worker.incarnation == worker.incarnation;
  });
}

// Whoever let it in did not know that it had been in, and was lost here.
void MembershipCore::lose_again(const std::vector<Member>& joined) {
  for (const Member& member : joined) {
    if (was_lost(member.worker)) lose(member.worker);
  }
}

// A new coordinator has heard of none.
void MembershipCore::report_all_lost() {
  const Member* coordinator = lowest_alive();
  const Incarnation told = coordinator == nullptr ? Incarnation() : coordinator->worker.incarnation;
  if (std::exchange(reported_to_, told) == told) return;
  for (const Member& member : view_.members) {
    if (is_lost(member.worker)) report_lost(member.worker);
  }
}

void MembershipCore::handle_lost(const WorkerInfo& from, const std::string& body,
                                 const Answer& answer) {
  const absl::StatusOr<proto::WorkerIdentity> lost =
      parse_message<proto::WorkerIdentity>("a WorkerIdentity", body);
  if (!lost.ok()) return answer.set_error(make_error(lost.status()));
  if (state_ != State::kCoordinating) {
    return answer.set_error(make_error(absl::UnavailableError("this worker does not coordinate")));
  }
  answer.set_value({});
  const Member* reporter = find_process(view_, from);
  const Member* other = find_process(view_, {lost->name(), lost->rank(), {lost->incarnation()}});
  if (reporter == nullptr || other == nullptr || SINEW_MEMBERSHIP_BUG(kPairStays)) return;
  if (reporter->worker == self_.worker || other->worker == self_.worker) return;
  reports_.keep_only(view_.members);
  reports_.add(reporter->worker.incarnation, other->worker.incarnation);
  // Who has lost one may be about to say that of more: leases of those that were cut off together
  // end a while apart.
  if (!reports_.next_to_go(view_.members).has_value() || std::exchange(settles_losses_, true)) {
    return;
  }
  after(2 * options_.answer_time, [](MembershipCore& core) {
    core.settles_losses_ = false;
    core.settle_losses();
  });
}

void MembershipCore::settle_losses() {
  while (state_ == State::kCoordinating) {
    const std::optional<WorkerInfo> next = reports_.next_to_go(coordinator_->view().members);
    if (!next.has_value()) return;
    drop(*next, Departure::kLost);
  }
}

// ---- Losses that no link notices.

// A link that never was up is never lost: so a member that was gone before the two met would stay
// on the list. And a coordinator that has just joined may never have heard that it is one.
void MembershipCore::watch() {
  if (SINEW_MEMBERSHIP_BUG(kUnlinkedNotAsked)) return;
  const bool takes_part = is_in() || is_leaving();
  if (!takes_part || !options_.ask_standing || !options_.is_linked ||
      std::exchange(watches_, true)) {
    return;
  }
  after(options_.answer_time, [](MembershipCore& core) {
    core.watches_ = false;
    core.ask_unlinked();
    core.watch();
  });
}

void MembershipCore::ask_unlinked() {
  const Member* coordinator = lowest_alive();
  // Also when it leaves, and tells all the others.
  const bool leads_itself = state_ == State::kCoordinating || state_ == State::kTakingOver ||
                            find_process(view_, self_.worker) == nullptr;
  std::map<Incarnation, Unlinked> still;
  for (const Member& member : view_.members) {
    const bool is_due = leads_itself || &member == coordinator;
    if (!is_due || member.worker == self_.worker || is_lost(member.worker)) continue;
    const bool leads = leads_itself || confirmed_ == member.worker.incarnation;
    if (leads && options_.is_linked(member.worker)) continue;
    const auto known = unlinked_.find(member.worker.incarnation);
    still[member.worker.incarnation] =
        known == unlinked_.end() ? Unlinked{0, scheduler_.now()} : known->second;
  }
  unlinked_.swap(still);
  for (const Member& member : view_.members) {
    if (unlinked_.count(member.worker.incarnation) == 0) continue;
    ask(member,
        [worker = member.worker](MembershipCore& core, const absl::StatusOr<Standing>& standing) {
          core.on_unlinked_answered(worker, standing);
        });
  }
}

void MembershipCore::on_unlinked_answered(const WorkerInfo& worker,
                                          const absl::StatusOr<Standing>& standing) {
  const auto asked = unlinked_.find(worker.incarnation);
  if ((!is_in() && !is_leaving()) || asked == unlinked_.end()) return;
  if (standing.ok() && standing->of_other == Standing::OfOther::kEvicted) return start_poll();
  if (standing.ok() && standing->of_other == Standing::OfOther::kMember) {
    confirmed_ = worker.incarnation;
    asked->second = {0, scheduler_.now()};
    return;
  }
  if (proves_end(standing)) note_dead(worker.incarnation);
  // Its link's lease decides.
  if (!standing.ok() && options_.is_linked(worker)) return;
  asked->second.asked_in_vain += says_gone(standing.status()) ? kRefusalCounts : 1;
  if (asked->second.asked_in_vain < kMostAskedInVain) return;
  // It may not have heard yet that it was let in.
  const bool may_join = standing.ok() && !standing->is_out;
  if (may_join && scheduler_.now() - asked->second.since < kJoinsFor) return;
  unlinked_.erase(asked);
  if (options_.on_unreachable) options_.on_unreachable(worker);
  lose(worker);
}

}  // namespace sinew::internal
