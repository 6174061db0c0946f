#include "sinew/rpc/membership/membership_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/file_rendezvous_thread.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

Member with_rank(Member member, int rank) {
  member.worker.rank = rank;
  return member;
}

std::shared_ptr<RendezvousFile> file_of(const MembershipOptions& options) {
  if (options.rendezvous.kind != Rendezvous::Kind::kFile) return nullptr;
  if (options.file != nullptr) return options.file;
  return std::make_shared<FileRendezvousThread>(options.rendezvous.path, options.job,
                                                FileRendezvousThread::Options());
}

}  // namespace

MembershipCore::MembershipCore(ControlPlane& plane, Directory& directory, MembershipOptions options,
                               Scheduler& scheduler)
    : plane_(plane),
      directory_(directory),
      options_(std::move(options)),
      scheduler_(scheduler),
      strand_(std::make_shared<Strand>(scheduler.runner())),
      file_(file_of(options_)),
      self_(with_rank(options_.self, options_.rendezvous.rank)),
      self_snapshot_(self_.worker) {}

void MembershipCore::add_methods() {
  add_method("sinew.member.join", &MembershipCore::handle_join);
  add_method("sinew.member.admit", &MembershipCore::handle_admit);
  add_method("sinew.member.list", &MembershipCore::handle_list);
  add_method("sinew.member.invite", &MembershipCore::handle_invite);
  add_method("sinew.member.update", &MembershipCore::handle_update);
  add_method(std::string(kLeaveMethod), &MembershipCore::handle_leave);
  add_method("sinew.member.lost", &MembershipCore::handle_lost);
  add_method(std::string(kVoteMethod), &MembershipCore::handle_vote);
  add_method(std::string(kProposeMethod), &MembershipCore::handle_propose);
}

void MembershipCore::add_method(std::string name, Handler handler) {
  plane_.add_control_method(std::move(name), [weak = weak_from_this(), handler](
                                                 const WorkerInfo& from, std::string body) {
    const std::shared_ptr<MembershipCore> self = weak.lock();
    if (self == nullptr) {
      return make_failed_future<std::string>(
          make_error(absl::UnavailableError("this worker shuts down")));
    }
    const Answer answer = self->make_answer();
    self->post([handler, from, body = std::move(body), answer](MembershipCore& core) {
      (core.*handler)(from, body, answer);
    });
    return answer.future();
  });
}

void MembershipCore::post(Step step) {
  strand_->post([weak = weak_from_this(), step = std::move(step)] {
    const std::shared_ptr<MembershipCore> self = weak.lock();
    if (self == nullptr) return;
    {
      MutexLock lock(self->mutex_);
      if (self->closed_) return;
    }
    step(*self);
  });
}

void MembershipCore::after(nanoseconds delay, Step step) {
  const TimePoint when = deadline_after(scheduler_.now(), delay);
  if (when == TimePoint::max()) return;
  scheduler_.run_at(when, [weak = weak_from_this(), step = std::move(step)]() mutable {
    if (const std::shared_ptr<MembershipCore> self = weak.lock()) self->post(std::move(step));
  });
}

void MembershipCore::call(const WorkerInfo& to, std::string_view method, std::string body,
                          nanoseconds timeout, Reply reply) {
  on_reply(plane_.control_call(to, method, std::move(body), timeout), std::move(reply));
}

void MembershipCore::call_address(const Contact& contact, std::string_view method, std::string body,
                                  nanoseconds timeout, Reply reply) {
  on_reply(plane_.control_call_address(contact, method, std::move(body), timeout),
           std::move(reply));
}

void MembershipCore::on_reply(const Future<std::string>& future, Reply reply) {
  future.on_done([weak = weak_from_this(),
                  reply = std::move(reply)](const Future<std::string>& done) {
    const std::shared_ptr<MembershipCore> self = weak.lock();
    if (self == nullptr) return;
    const std::exception_ptr error = done.error();
    absl::StatusOr<std::string> result =
        error != nullptr ? absl::StatusOr<std::string>(to_status(error)) : done.value();
    self->post([reply, result = std::move(result)](MembershipCore& core) { reply(core, result); });
  });
}

void MembershipCore::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  if (file_ != nullptr) file_->close();
}

RendezvousFile::OnDone MembershipCore::then(FileStep step) {
  file_operations_.fetch_add(1, std::memory_order_relaxed);
  return [weak = weak_from_this(), step = std::move(step)](const absl::Status& status) {
    const std::shared_ptr<MembershipCore> self = weak.lock();
    if (self == nullptr) return;
    self->post([step, status](MembershipCore& core) {
      core.file_operations_.fetch_sub(1, std::memory_order_release);
      step(core, status);
    });
  };
}

void MembershipCore::remove_from_file(const WorkerInfo& worker, FileStep step) {
  if (file_ == nullptr) return step(*this, absl::OkStatus());
  file_->remove(worker,
                then([step = std::move(step)](MembershipCore& core, const absl::Status& removed) {
                  if (!removed.ok()) core.warn(std::string(removed.message()));
                  step(core, removed);
                }));
}

bool MembershipCore::ready() const {
  MutexLock lock(mutex_);
  return ready_;
}

WorkerInfo MembershipCore::self() const {
  MutexLock lock(mutex_);
  return self_snapshot_;
}

std::vector<std::string> MembershipCore::world_names() const {
  MutexLock lock(mutex_);
  return world_names_;
}

WorkerInfo MembershipCore::coordinator() const {
  MutexLock lock(mutex_);
  return coordinator_snapshot_;
}

void MembershipCore::snapshot() {
  const Member* coordinator = lowest_alive();
  std::shared_ptr<const Standings> standings = standings_now();
  MutexLock lock(mutex_);
  standings_.swap(standings);
  public_state_ = public_state();
  ready_ = is_in();
  self_snapshot_ = self_.worker;
  // They never change.
  if (world_names_.empty()) world_names_ = view_.world_names;
  coordinator_snapshot_ = coordinator == nullptr ? WorkerInfo() : coordinator->worker;
}

MembershipState MembershipCore::public_state() const {
  switch (state_) {
    case State::kIdle:
    case State::kSeeking:
    case State::kPausing:
    case State::kCollecting:
      return MembershipState::kJoining;
    case State::kMember:
    case State::kTakingOver:
    case State::kCoordinating:
      if (left_.has_value()) return MembershipState::kLeft;
      return is_unsure() || is_frozen_ ? MembershipState::kSuspected : MembershipState::kMember;
    case State::kLeaving:
    case State::kOut:
      return was_evicted_ ? MembershipState::kEvicted : MembershipState::kLeft;
  }
  return MembershipState::kLeft;
}

MembershipState MembershipCore::state() const {
  MutexLock lock(mutex_);
  return public_state_;
}

void MembershipCore::warn(const std::string& text) {
  if (options_.on_warning) options_.on_warning(text);
}

void MembershipCore::warn_of_another_job(const std::string& who) {
  if (std::exchange(has_met_another_job_, true)) return;
  warn(absl::StrCat("two jobs have been founded that are both ", job_text(),
                    ": this worker is in one of them, ", who,
                    " in the other; end one of the two, and give both no more than one founder"));
}

std::string MembershipCore::job_text() const { return absl::StrCat("job '", options_.job, "'"); }

const Member* MembershipCore::lowest_alive() const {
  for (const Member& member : view_.members) {
    if (!is_lost(member.worker)) return &member;
  }
  return nullptr;
}

void MembershipCore::forget_absent() {
  std::set<Incarnation> present;
  for (const Member& member : view_.members) present.insert(member.worker.incarnation);
  for (auto each = acknowledged_.begin(); each != acknowledged_.end();) {
    each = present.count(each->first) > 0 ? std::next(each) : acknowledged_.erase(each);
  }
  for (auto each = refusing_.begin(); each != refusing_.end();) {
    each = present.count(each->first) > 0 ? std::next(each) : refusing_.erase(each);
  }
  for (auto each = lost_.begin(); each != lost_.end();) {
    each = present.count(each->first) > 0 ? std::next(each) : lost_.erase(each);
  }
}

std::vector<Departed> MembershipCore::departed_since(const MemberView& before) const {
  std::vector<Departed> departed;
  for (const Member& member : before.members) {
    const bool is_gone = find_process(view_, member.worker) == nullptr;
    if (!is_gone || member.worker == self_.worker) continue;
    const Incarnation incarnation = member.worker.incarnation;
    departed.push_back(
        {member.worker, how_departed(view_, incarnation), reason_of_loss(view_, incarnation)});
  }
  return departed;
}

void MembershipCore::adopt(MemberView view) {
  const MemberView before = std::move(view_);
  view_ = std::move(view);
  has_had_others_ = has_had_others_ || view_.members.size() > 1;
  if (view_.world_size > 0 && !ballot_.has_value()) ballot_.emplace(self_.worker.incarnation);
  if (ballot_.has_value()) ballot_->on_view(view_);
  is_frozen_ = false;
  undecided_since_ = TimePoint::max();
  note_gone(before);
  const std::vector<Departed> gone = departed_since(before);
  if (options_.before_change && !gone.empty()) options_.before_change(gone);
  directory_.replace(view_.version, view_.members);
  std::vector<Member> joined;
  for (const Member& member : view_.members) {
    const bool is_new = find_process(before, member.worker) == nullptr;
    if (is_new && member.worker != self_.worker) joined.push_back(member);
  }
  forget_absent();
  snapshot();
  if (options_.on_change && !(joined.empty() && gone.empty())) options_.on_change(joined, gone);
  elect();
  invite();
  ask_the_gone();
  look_around();
  watch();
  report_all_lost();
  lose_again(joined);
}

// A coordinator that this worker has not heard of joined after its last list, and follows one that
// is lost here too; anybody else in that place is a stranger, however new its list. Whoever is
// refused too early asks again.
bool MembershipCore::may_succeed(const WorkerInfo& from, const MemberView& view) const {
  if (view.members.empty() || view_.members.empty()) return false;
  const WorkerInfo& first = view.members.front().worker;
  if (first.name != from.name || first.incarnation != from.incarnation) return false;
  if (!is_lost(view_.members.front().worker)) return false;
  const Member* successor = lowest_alive();
  return successor == nullptr || first.rank < successor->worker.rank;
}

void MembershipCore::handle_update(const WorkerInfo& from, const std::string& body,
                                   const Answer& answer) {
  const absl::StatusOr<proto::MemberList> list =
      parse_message<proto::MemberList>("a MemberList", body);
  absl::StatusOr<MemberView> view = list.ok() ? decode(*list) : list.status();
  if (!view.ok()) return fail(answer, view.status());
  if (is_lost(from)) return fail(answer, absl::UnavailableError("you were taken for lost"));
  const bool is_member = is_in() || is_leaving();
  const bool has_asked = state_ == State::kSeeking && has_asked_;
  if (has_asked && find_process(*view, self_.worker) != nullptr) {
    // The list came sooner than the answer to our JoinRequest.
    finish_join(*std::move(view));
    answer.set_value({});
    return;
  }
  if (!is_member) return fail(answer, absl::UnavailableError("this worker is no member"));
  confirmed_ = from.incarnation;
  // Who leaves goes on until it knows that all others have heard of it, from whomever.
  const bool is_known =
      view->version == view_.version ||
      (view->version < view_.version && how_departed(view_, from.incarnation) == Departure::kLeft);
  if (is_known) return answer.set_value({});
  if (find_process(view_, from) == nullptr) {
    if (view->version < view_.version) {
      return fail(answer, absl::FailedPreconditionError(absl::StrCat(
                              "worker '", printable(from.name, 128),
                              "' is no member any more: the others took it for lost")));
    }
    if (!may_succeed(from, *view)) {
      fetch_list();
      return fail(answer, absl::PermissionDeniedError("only members send member lists"));
    }
  }
  answer.set_value({});
  // It coordinates by what it heard before, from a side that is no more: nobody else may tell it.
  if (view->version < view_.version) return tell_list(from);
  take_list(from, *std::move(view));
}

void MembershipCore::tell_list(const WorkerInfo& behind) {
  const Member* member = find_process(view_, behind);
  if (member != nullptr && publishing_.insert(behind.incarnation).second) publish_to(*member);
}

// If whoever sends a list has come after the list here, the coordinator knows it.
void MembershipCore::fetch_list() {
  const Member* coordinator = lowest_alive();
  if (coordinator == nullptr || coordinator->worker == self_.worker ||
      std::exchange(fetches_list_, true)) {
    return;
  }
  call(
      coordinator->worker, "sinew.member.list", {}, kListTimeout,
      [from = coordinator->worker](MembershipCore& core, const absl::StatusOr<std::string>& reply) {
        core.fetches_list_ = false;
        proto::MemberList list;
        if (!reply.ok() || !list.ParseFromString(*reply)) return;
        absl::StatusOr<MemberView> view = decode(list);
        const bool is_member = core.is_in() || core.is_leaving();
        const bool knows = view.ok() && find_process(*view, core.self_.worker) != nullptr;
        if (is_member && knows && !core.is_lost(from)) core.take_list(from, *std::move(view));
      });
}

void MembershipCore::take_list(const WorkerInfo& from, MemberView view) {
  if (view.version <= view_.version) return;
  if (find_process(view, self_.worker) == nullptr) {
    be_removed(evicted(absl::StrCat("worker '", from.name, "' and others took it for lost")));
    return;
  }
  const bool led = state_ == State::kTakingOver || state_ == State::kCoordinating;
  if (led) {
    fail_waiting(absl::UnavailableError("the coordinator has changed; ask again"));
    coordinator_.reset();
    state_ = member_state();
  }
  adopt(std::move(view));
  if (led && state_ == State::kLeaving) try_to_leave();
}

void MembershipCore::be_removed(const absl::Status& reason) {
  if (is_leaving()) return finish_leave(absl::OkStatus());
  state_ = State::kOut;
  was_evicted_ = true;
  note_contacts();
  coordinator_.reset();
  fail_waiting(absl::UnavailableError("this worker is no member any more; ask again"));
  snapshot();
  if (options_.on_removed) options_.on_removed(reason);
  end_all_suspicions();
}

}  // namespace sinew::internal
