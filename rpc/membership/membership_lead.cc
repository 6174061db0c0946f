// The part of MembershipCore that leads: it takes over from a coordinator that is lost, makes
// lists, and sees to it that all get them.

#include <algorithm>
#include <utility>

#include "sinew/rpc/membership/membership_bugs.h"
#include "sinew/rpc/membership/membership_core.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr nanoseconds kUpdateTimeout = seconds(5);
constexpr nanoseconds kUpdateRetry = milliseconds(500);
// Who refuses lists for so long is of another side of the job.
constexpr nanoseconds kRefusalsBorne = seconds(4);

}  // namespace

void MembershipCore::elect() {
  const Member* lowest = state_ == State::kMember ? lowest_alive() : nullptr;
  if (lowest == nullptr || lowest->worker != self_.worker) return;
  was_handed_over() ? coordinate(view_) : take_over();
}

// First in the list: the one before us made it, and hands over. Otherwise that one died, and may
// have told others what we do not know. Where members vote it hands over its term: who has voted in
// a later one believes no list of this one any more.
bool MembershipCore::was_handed_over() const {
  if (view_.members.front().worker != self_.worker) return false;
  if (!ballot_.has_value()) return true;
  return ballot_->term() <= term_of(view_.version);
}

void MembershipCore::take_over() {
  state_ = State::kTakingOver;
  awaited_.clear();
  for (const Member& member : view_.members) {
    if (member.worker == self_.worker || is_lost(member.worker)) continue;
    awaited_.insert(member.worker.incarnation);
  }
  // There is a job, although nobody coordinates it just now.
  invite();
  look_around();
  ballot_.has_value() ? stand() : ask_for_lists();
}

void MembershipCore::ask_for_lists() {
  newest_ = view_;
  for (const WorkerInfo& other : awaited_workers()) {
    call(other, "sinew.member.list", {}, kListTimeout,
         [other](MembershipCore& core, const absl::StatusOr<std::string>& reply) {
           core.on_list(other, reply);
         });
  }
  finish_take_over();
}

std::vector<WorkerInfo> MembershipCore::awaited_workers() const {
  std::vector<WorkerInfo> others;
  for (const Member& member : view_.members) {
    if (awaited_.count(member.worker.incarnation) > 0) others.push_back(member.worker);
  }
  return others;
}

void MembershipCore::on_list(const WorkerInfo& from, const absl::StatusOr<std::string>& reply) {
  if (state_ != State::kTakingOver) return;
  awaited_.erase(from.incarnation);
  proto::MemberList list;
  if (reply.ok() && list.ParseFromString(*reply)) {
    absl::StatusOr<MemberView> view = decode(list);
    if (view.ok() && view->version > newest_.version) newest_ = *std::move(view);
  }
  finish_take_over();
}

void MembershipCore::finish_take_over() {
  if (state_ != State::kTakingOver) return;
  if (ballot_.has_value()) return check_votes();
  if (!awaited_.empty()) return;
  if (find_process(newest_, self_.worker) == nullptr) {
    be_removed(evicted("the others took it for lost"));
    return;
  }
  newest_ = without_lost(std::move(newest_));
  // A list of the new coordinator beats any list that the old one made and that nobody of those who
  // answered has seen.
  newest_.version = first_version_of(term_of(newest_.version) + 1);
  state_ = member_state();
  adopt(newest_);
  state_ == State::kLeaving ? leave_as_coordinator() : coordinate(view_);
}

MemberView MembershipCore::without_lost(MemberView view) const {
  std::vector<Member>& members = view.members;
  for (const Member& member : members) {
    note_lost(view, member.worker.incarnation, why_lost(member.worker));
  }
  members.erase(std::remove_if(members.begin(), members.end(),
                               [&](const Member& member) { return is_lost(member.worker); }),
                members.end());
  return view;
}

void MembershipCore::coordinate(MemberView view) {
  state_ = State::kCoordinating;
  acknowledged_.clear();
  reports_.clear();
  published_version_ = view.version;
  coordinator_.emplace(options_.job, std::move(view), true);
  snapshot();
  // Whom this worker has lost the one that handed over may have had on its list.
  for (const Member& member : view_.members) {
    const WorkerInfo& worker = member.worker;
    if (!is_lost(worker) || !coordinator_->drop(worker, Departure::kLost, why_lost(worker)))
      continue;
    remove_from_file(member.worker, [](MembershipCore&, const absl::Status&) {});
  }
  renew();
  publish();
  invite();
  ask_the_gone();
  look_around();
  watch();
}

// The coordinator's list has changed.
void MembershipCore::renew() {
  if (coordinator_->view().version == view_.version) return;
  ballot_.has_value() ? propose(coordinator_->view()) : put_in_force(coordinator_->view());
}

void MembershipCore::put_in_force(MemberView view) {
  published_version_ = view.version;
  adopt(view);
  publish();
  // From now on somebody who has just joined coordinates. It starts when it gets our answer; until
  // then those who ask are sent away for a moment. What we have published we go on to deliver.
  if (state_ == State::kCoordinating && view_.members.front().worker != self_.worker) {
    state_ = State::kMember;
    coordinator_.reset();
  }
  check_settled();
}

void MembershipCore::publish() {
  if (published_version_ != view_.version || state_ == State::kOut) return;
  for (const Member& member : view_.members) {
    const auto acknowledged = acknowledged_.find(member.worker.incarnation);
    const bool knows = acknowledged != acknowledged_.end() && acknowledged->second >= view_.version;
    if (knows || member.worker == self_.worker || is_lost(member.worker)) continue;
    if (publishing_.insert(member.worker.incarnation).second) publish_to(member);
  }
}

void MembershipCore::publish_to(const Member& member) {
  proto::MemberList list;
  encode(view_, list);
  call(member.worker, "sinew.member.update", list.SerializeAsString(), kUpdateTimeout,
       [to = member.worker, version = view_.version](MembershipCore& core,
                                                     const absl::StatusOr<std::string>& reply) {
         core.on_published(to, version, reply.status());
       });
}

void MembershipCore::on_published(const WorkerInfo& to, std::uint64_t version,
                                  const absl::Status& status) {
  publishing_.erase(to.incarnation);
  if (state_ == State::kOut) return;
  if (status.ok()) {
    const bool listed = find_process(view_, to) != nullptr;
    if (listed) acknowledged_[to.incarnation] = std::max(acknowledged_[to.incarnation], version);
    refusing_.erase(to.incarnation);
    publish();
  } else {
    on_refused(to, status);
    if (!std::exchange(publishes_again_, true)) {
      after(kUpdateRetry, [](MembershipCore& core) {
        core.publishes_again_ = false;
        core.publish();
      });
    }
  }
  check_settled();
  check_left();
}

void MembershipCore::on_refused(const WorkerInfo& to, const absl::Status& status) {
  // It may have a newer list, or may be somebody else: one word removes nobody.
  if (absl::IsFailedPrecondition(status)) start_poll();
  if (!absl::IsFailedPrecondition(status) && !absl::IsPermissionDenied(status)) return;
  // It follows somebody else: of another side, since it was listed there and here.
  const TimePoint since = refusing_.try_emplace(to.incarnation, scheduler_.now()).first->second;
  if (scheduler_.now() - since < kRefusalsBorne || is_unsure()) return;
  refusing_.erase(to.incarnation);
  if (SINEW_MEMBERSHIP_BUG(kRefuserStays)) return;
  if (state_ == State::kCoordinating) drop(to, Departure::kLost);
}

void MembershipCore::drop(const WorkerInfo& worker, Departure how) {
  if (!coordinator_->drop(worker, how, why_lost(worker))) return;
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [&](const Waiting& each) {
                                  return each.worker.incarnation == worker.incarnation;
                                }),
                 waiting_.end());
  remove_from_file(worker, [](MembershipCore&, const absl::Status&) {});
  if (state_ == State::kCoordinating) renew();
}

}  // namespace sinew::internal
