// The part of MembershipCore by which a fixed world decides (Ballot): on who coordinates, and on
// each list. Where too many do not answer nothing is decided: the membership is frozen, its list
// stays as it is, until enough of the silent ones are known to be dead.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/membership_bugs.h"
#include "sinew/rpc/membership/membership_core.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr nanoseconds kVoteTimeout = seconds(2);
constexpr nanoseconds kOfferTimeout = seconds(5);
constexpr nanoseconds kTryAgain = milliseconds(500);
// Leases of those that were lost together end a while apart.
constexpr nanoseconds kFrozenAfter = seconds(3);
constexpr nanoseconds kAskSilent = seconds(1);

}  // namespace

// ---- Who coordinates.

void MembershipCore::stand() {
  const std::uint64_t version = ballot_->latest().version;
  proto::VoteRequest request;
  request.set_term(ballot_->stand());
  request.set_version(version);
  undecided_since_ = std::min(undecided_since_, scheduler_.now());
  const std::string body = request.SerializeAsString();
  for (const WorkerInfo& other : awaited_workers()) {
    call(other, kVoteMethod, body, kVoteTimeout,
         [other, term = request.term()](MembershipCore& core,
                                        const absl::StatusOr<std::string>& reply) {
           if (term == core.ballot_->term()) core.awaited_.erase(other.incarnation);
           core.on_vote(term, reply);
         });
  }
  for (const Member& joiner : ballot_->latest().members) {
    if (find_process(view_, joiner.worker) != nullptr) continue;
    call_address(
        Contact::of(joiner), kVoteMethod, body, kVoteTimeout,
        [term = request.term()](MembershipCore& core, const absl::StatusOr<std::string>& reply) {
          core.on_vote(term, reply);
        });
  }
  after(kTryAgain, [term = request.term()](MembershipCore& core) {
    const bool stands = core.state_ == State::kTakingOver && core.ballot_->term() == term;
    if (!stands) return;
    // Somebody else may have become the one to stand.
    core.state_ = core.member_state();
    core.state_ == State::kLeaving ? core.try_to_leave() : core.elect();
  });
  check_votes();
  check_frozen();
}

void MembershipCore::on_vote(std::uint64_t term, const absl::StatusOr<std::string>& reply) {
  if (state_ != State::kTakingOver) return;
  proto::VoteResponse response;
  if (!reply.ok() || !response.ParseFromString(*reply)) return check_votes();
  if (response.granted()) ballot_->on_vote(term, {response.voter()});
  if (response.has_accepted()) {
    absl::StatusOr<MemberView> accepted = decode(response.accepted());
    if (accepted.ok()) ballot_->learn(*std::move(accepted));
  }
  if (response.has_list() && response.list().version() > view_.version) {
    absl::StatusOr<MemberView> view = decode(response.list());
    if (view.ok() && find_process(*view, self_.worker) != nullptr) {
      return take_list(view->members.front().worker, *std::move(view));
    }
  }
  check_votes();
}

void MembershipCore::check_votes() {
  if (state_ != State::kTakingOver) return;
  const Support support = ballot_->support();
  const bool is_elected =
      support == Support::kMajority || (support == Support::kHalf && awaited_.empty());
  if (!is_elected) return;
  undecided_since_ = TimePoint::max();
  // A list without this worker was never in force, or all of it are dead.
  const MemberView& latest = ballot_->latest();
  MemberView list = without_lost(find_process(latest, self_.worker) == nullptr ? view_ : latest);
  list.version = first_version_of(ballot_->term());
  coordinate(std::move(list));
  if (!left_.has_value()) return;
  // Its own leaving is the next list.
  coordinator_.reset();
  state_ = State::kLeaving;
  leave_as_coordinator();
}

// Whoever lets it in has proposed to, or done so, and may be gone before this worker has the list
// that it is on. It knows nothing of the others, and has a say all the same. Who has asked nobody
// is on no list.
bool MembershipCore::is_let_in() {
  const bool is_fixed = options_.rendezvous.world_size > 0;
  if (state_ != State::kSeeking || !is_fixed || !has_asked_) return false;
  if (!ballot_.has_value()) ballot_.emplace(self_.worker.incarnation);
  return true;
}

// Of one that is being let in: anybody may say that it is a member. As long as whom this worker has
// asked answers here nobody else is believed, as members do not vote while who is before a
// candidate answers them.
bool MembershipCore::believes(const WorkerInfo& from) const {
  return !asking_ || from.incarnation == voted_for_;
}

void MembershipCore::handle_vote(const WorkerInfo& from, const std::string& body,
                                 const Answer& answer) {
  const absl::StatusOr<proto::VoteRequest> request =
      parse_message<proto::VoteRequest>("a VoteRequest", body);
  if (!request.ok()) return fail(answer, request.status());
  proto::VoteResponse response;
  response.set_voter(self_.worker.incarnation.value);
  if (is_let_in()) {
    // It believes nobody of an earlier term from here on.
    if (believes(from)) {
      response.set_granted(ballot_->vote(request->term(), request->version()));
      if (response.granted()) voted_for_ = from.incarnation;
      const MemberView& latest = ballot_->latest();
      if (latest.version > request->version()) encode(latest, *response.mutable_accepted());
    }
    return answer.set_value(response.SerializeAsString());
  }
  const bool knows = ballot_.has_value() && (is_in() || is_leaving());
  if (!knows) return fail(answer, absl::UnavailableError("this worker is no member; ask again"));
  const Member* first = lowest_alive();
  const bool is_listed = find_process(view_, from) != nullptr;
  const bool is_next =
      is_listed && first != nullptr && first->worker.incarnation == from.incarnation;
  // Not as long as one before the candidate answers here.
  response.set_granted(is_next && ballot_->vote(request->term(), request->version()));
  if (is_listed) {
    encode(view_, *response.mutable_list());
    const MemberView& latest = ballot_->latest();
    if (latest.version > request->version()) encode(latest, *response.mutable_accepted());
  }
  answer.set_value(response.SerializeAsString());
}

// ---- On each list.

void MembershipCore::propose(const MemberView& next) {
  ballot_->propose(next);
  undecided_since_ = std::min(undecided_since_, scheduler_.now());
  offer();
  check_decided();
  check_frozen();
}

void MembershipCore::offer() {
  const bool leads = state_ == State::kCoordinating || state_ == State::kLeaving;
  if (!leads || !ballot_->proposed().has_value()) return;
  const MemberView& proposed = *ballot_->proposed();
  proto::MemberList list;
  encode(proposed, list);
  const std::string body = list.SerializeAsString();
  for (const Member& member : view_.members) {
    const WorkerInfo& to = member.worker;
    const bool is_done = to == self_.worker || is_lost(to) || ballot_->has_accepted(to.incarnation);
    if (is_done || !offering_.insert(to.incarnation).second) continue;
    call(to, kProposeMethod, body, kOfferTimeout,
         [to, version = proposed.version](MembershipCore& core,
                                          const absl::StatusOr<std::string>& reply) {
           core.on_offered(to, version, reply.status());
         });
  }
}

void MembershipCore::on_offered(const WorkerInfo& to, std::uint64_t version,
                                const absl::Status& status) {
  offering_.erase(to.incarnation);
  if (!ballot_.has_value()) return;
  if (status.ok()) {
    ballot_->on_accepted(version, to.incarnation);
    check_decided();
    // There may be a later one by now.
    offer();
  } else if (!std::exchange(offers_again_, true)) {
    const bool is_refused = absl::IsFailedPrecondition(status);
    if (is_refused) start_poll();
    after(kTryAgain, [is_refused, version](MembershipCore& core) {
      core.offers_again_ = false;
      if (is_refused) core.stand_again(version);
      if (core.ballot_.has_value()) core.offer();
    });
  }
}

// A member has voted in a later term, for somebody who was not elected: it accepts nothing of this
// one, however often it is offered. Each term that this worker stands for is a later one.
void MembershipCore::stand_again(std::uint64_t refused) {
  const bool leads = state_ == State::kCoordinating || state_ == State::kLeaving;
  if (!leads || is_unsure()) return;
  const std::optional<MemberView>& proposed = ballot_->proposed();
  if (!proposed.has_value() || proposed->version != refused) return;
  coordinator_.reset();
  take_over();
}

void MembershipCore::check_decided() {
  const bool leads = state_ == State::kCoordinating || state_ == State::kLeaving;
  if (!leads) return;
  const Support support = ballot_->acceptance();
  const bool is_decided =
      support == Support::kMajority ||
      (support == Support::kHalf &&
       std::all_of(view_.members.begin(), view_.members.end(), [&](const Member& member) {
         return is_lost(member.worker) || ballot_->has_accepted(member.worker.incarnation);
       }));
  if (!is_decided) return;
  const MemberView decided = *ballot_->proposed();
  undecided_since_ = TimePoint::max();
  state_ == State::kLeaving ? leave_with(decided) : put_in_force(decided);
}

void MembershipCore::handle_propose(const WorkerInfo& from, const std::string& body,
                                    const Answer& answer) {
  const absl::StatusOr<proto::MemberList> list =
      parse_message<proto::MemberList>("a MemberList", body);
  const absl::StatusOr<MemberView> view = list.ok() ? decode(*list) : list.status();
  if (!view.ok()) return fail(answer, view.status());
  const bool concerns_joiner = view->world_size == options_.rendezvous.world_size &&
                               find_process(*view, from) != nullptr &&
                               find_process(*view, self_.worker) != nullptr;
  if (concerns_joiner && is_let_in() && believes(from) && !SINEW_MEMBERSHIP_BUG(kJoinerHasNoSay) &&
      ballot_->accept(*view)) {
    return answer.set_value({});
  }
  const bool knows = ballot_.has_value() && (is_in() || is_leaving());
  if (!knows) return fail(answer, absl::UnavailableError("this worker is no member; ask again"));
  if (is_lost(from)) return fail(answer, absl::UnavailableError("you were taken for lost"));
  if (find_process(view_, from) == nullptr) {
    fetch_list();
    return fail(answer, absl::PermissionDeniedError("only members propose member lists"));
  }
  if (!ballot_->accept(*view)) {
    return fail(answer, absl::FailedPreconditionError(
                            absl::StrCat("worker '", self_.worker.name,
                                         "' knows a newer list, or has voted for somebody else")));
  }
  // Somebody else leads, by the votes of others.
  if (state_ == State::kTakingOver || state_ == State::kCoordinating) {
    fail_waiting(absl::UnavailableError("the coordinator has changed; ask again"));
    coordinator_.reset();
    state_ = member_state();
  }
  answer.set_value({});
}

// ---- Who has no vote any more.

void MembershipCore::note_dead(Incarnation member) {
  if (!ballot_.has_value() || SINEW_MEMBERSHIP_BUG(kFrozenForGood)) return;
  ballot_->on_dead(member);
  check_votes();
  check_decided();
}

// `again` comes in the place of a member: that one may be known to be dead by it.
void MembershipCore::note_restart(const WorkerInfo& again) {
  if (!ballot_.has_value() || !options_.ask_standing) return;
  std::vector<Member> suspects;
  for (const Member& member : view_.members) {
    if (is_lost(member.worker)) suspects.push_back(member);
  }
  // Who was being let in when everything stopped counts, too.
  for (const Member& member : ballot_->latest().members) {
    if (find_process(view_, member.worker) == nullptr) suspects.push_back(member);
  }
  for (const Member& member : suspects) {
    const bool is_earlier = member.worker.name == again.name &&
                            member.worker.incarnation != again.incarnation &&
                            !ballot_->is_dead(member.worker.incarnation);
    if (!is_earlier) continue;
    ask(member,
        [worker = member.worker](MembershipCore& core, const absl::StatusOr<Standing>& standing) {
          // Somebody has started it again, under its name, and nobody listens where it did.
          if (proves_end(standing) || says_gone(standing.status())) {
            core.note_dead(worker.incarnation);
          }
        });
  }
}

// ---- Nothing is decided.

void MembershipCore::check_frozen() {
  if (is_frozen_ || std::exchange(checks_frozen_, true)) return;
  after(kFrozenAfter, [](MembershipCore& core) {
    core.checks_frozen_ = false;
    if (core.undecided_since_ == TimePoint::max() || !core.is_in()) return;
    const bool is_long = core.scheduler_.now() - core.undecided_since_ >= kFrozenAfter;
    is_long ? core.freeze() : core.check_frozen();
  });
}

void MembershipCore::freeze() {
  is_frozen_ = true;
  snapshot();
  warn(absl::StrCat(
      "the membership of ", job_text(), " is frozen: of ", view_.members.size(),
      " workers too few answer worker '", self_.worker.name,
      "' to decide who is in it; missing: ", absl::StrJoin(ballot_->silent(), ", "),
      "; the list stays as it is, and calls between those who see each other go on; start the "
      "missing ones again, or end this part"));
  ask_the_silent();
}

void MembershipCore::ask_the_silent() {
  if (!is_frozen_ || !is_in() || !options_.ask_standing || std::exchange(asks_silent_, true)) {
    return;
  }
  for (const Member& member : view_.members) {
    if (!is_lost(member.worker) || ballot_->is_dead(member.worker.incarnation)) continue;
    ask(member,
        [worker = member.worker](MembershipCore& core, const absl::StatusOr<Standing>& standing) {
          core.on_silent_answered(worker, standing);
        });
  }
  after(kAskSilent, [](MembershipCore& core) {
    core.asks_silent_ = false;
    core.ask_the_silent();
  });
}

void MembershipCore::on_silent_answered(const WorkerInfo& worker,
                                        const absl::StatusOr<Standing>& standing) {
  if (proves_end(standing)) return note_dead(worker.incarnation);
  if (standing.ok() && standing->of_other == Standing::OfOther::kEvicted) start_poll();
}

}  // namespace sinew::internal
