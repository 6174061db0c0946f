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

constexpr nanoseconds kListTimeout = seconds(2);
constexpr nanoseconds kUpdateTimeout = seconds(5);
constexpr nanoseconds kUpdateRetry = milliseconds(500);
// Who refuses lists for so long is of another side of the job.
constexpr nanoseconds kRefusalsBorne = seconds(4);
constexpr nanoseconds kLeaveRetry = milliseconds(100);

void fail(const Promise<std::string>& answer, const absl::Status& status) {
  answer.try_set_error(make_error(status));
}

Member with_rank(Member member, int rank) {
  member.worker.rank = rank;
  return member;
}

// The high half counts take-overs, so that a list of the new coordinator beats any list that the
// old one made and that nobody of those who answered has seen.
std::uint64_t next_term(std::uint64_t version) { return ((version >> 32) + 1) << 32; }

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
  add_method("sinew.member.leave", &MembershipCore::handle_leave);
  add_method("sinew.member.lost", &MembershipCore::handle_lost);
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

void MembershipCore::call_address(const std::string& address, std::string_view method,
                                  std::string body, nanoseconds timeout, Reply reply) {
  on_reply(plane_.control_call_address(address, method, std::move(body), timeout),
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
      return is_unsure() ? MembershipState::kSuspected : MembershipState::kMember;
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

void MembershipCore::adopt(MemberView view) {
  const MemberView before = std::move(view_);
  view_ = std::move(view);
  note_gone(before);
  std::vector<WorkerInfo> gone = directory_.replace(view_.version, view_.members);
  gone.erase(std::remove(gone.begin(), gone.end(), self_.worker), gone.end());
  std::vector<Member> joined;
  std::set<Incarnation> present;
  for (const Member& member : view_.members) {
    present.insert(member.worker.incarnation);
    const bool is_new = find_process(before, member.worker) == nullptr;
    if (is_new && member.worker != self_.worker) joined.push_back(member);
  }
  for (auto each = acknowledged_.begin(); each != acknowledged_.end();) {
    each = present.count(each->first) > 0 ? std::next(each) : acknowledged_.erase(each);
  }
  for (auto each = refusing_.begin(); each != refusing_.end();) {
    each = present.count(each->first) > 0 ? std::next(each) : refusing_.erase(each);
  }
  for (auto each = lost_.begin(); each != lost_.end();) {
    each = present.count(*each) > 0 ? std::next(each) : lost_.erase(each);
  }
  snapshot();
  std::vector<Departed> departed;
  departed.reserve(gone.size());
  for (const WorkerInfo& worker : gone) {
    departed.push_back({worker, how_departed(view_, worker.incarnation)});
  }
  if (options_.on_change && !(joined.empty() && gone.empty())) options_.on_change(joined, departed);
  elect();
  invite();
  ask_the_gone();
  look_around();
  watch();
  report_all_lost();
  lose_again(joined);
}

void MembershipCore::elect() {
  const Member* lowest = state_ == State::kMember ? lowest_alive() : nullptr;
  if (lowest == nullptr || lowest->worker != self_.worker) return;
  // First in the list: the one before us handed over. Otherwise it died, and may have told others
  // what we do not know.
  if (view_.members.front().worker == self_.worker) {
    coordinate(view_);
  } else {
    take_over();
  }
}

void MembershipCore::take_over() {
  state_ = State::kTakingOver;
  newest_ = view_;
  awaited_lists_.clear();
  std::vector<WorkerInfo> others;
  for (const Member& member : view_.members) {
    if (member.worker == self_.worker || is_lost(member.worker)) continue;
    awaited_lists_.insert(member.worker.incarnation);
    others.push_back(member.worker);
  }
  for (const WorkerInfo& other : others) {
    call(other, "sinew.member.list", {}, kListTimeout,
         [other](MembershipCore& core, const absl::StatusOr<std::string>& reply) {
           core.on_list(other, reply);
         });
  }
  // There is a job, although nobody coordinates it just now.
  invite();
  finish_take_over();
}

void MembershipCore::on_list(const WorkerInfo& from, const absl::StatusOr<std::string>& reply) {
  if (state_ != State::kTakingOver) return;
  awaited_lists_.erase(from.incarnation);
  proto::MemberList list;
  if (reply.ok() && list.ParseFromString(*reply)) {
    absl::StatusOr<MemberView> view = decode(list);
    if (view.ok() && view->version > newest_.version) newest_ = *std::move(view);
  }
  finish_take_over();
}

void MembershipCore::finish_take_over() {
  if (state_ != State::kTakingOver || !awaited_lists_.empty()) return;
  if (find_process(newest_, self_.worker) == nullptr) {
    be_removed(evicted("the others took it for lost"));
    return;
  }
  std::vector<Member>& members = newest_.members;
  members.erase(std::remove_if(members.begin(), members.end(),
                               [&](const Member& member) { return is_lost(member.worker); }),
                members.end());
  newest_.version = next_term(newest_.version);
  state_ = member_state();
  adopt(newest_);
  state_ == State::kLeaving ? leave_as_coordinator() : coordinate(view_);
}

void MembershipCore::coordinate(MemberView view) {
  state_ = State::kCoordinating;
  acknowledged_.clear();
  reports_.clear();
  published_version_ = view.version;
  coordinator_.emplace(options_.job, std::move(view), true);
  snapshot();
  publish();
  invite();
  ask_the_gone();
  look_around();
  watch();
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
  if (state_ == State::kCoordinating) drop(to, Departure::kLost);
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
  if (state_ == State::kSeeking && find_process(*view, self_.worker) != nullptr) {
    // The list came sooner than the answer to our JoinRequest.
    finish_join(*std::move(view));
    answer.set_value({});
    return;
  }
  if (!is_member) return fail(answer, absl::UnavailableError("this worker is no member"));
  confirmed_ = from.incarnation;
  // Who leaves goes on until it knows that all others have heard of it, from whomever.
  const bool is_known = view->version == view_.version ||
                        (view->version < view_.version &&
                         how_departed(view_, from.incarnation) == Departure::kLeft);
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
  take_list(from, *std::move(view));
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
  if (state_ != State::kCoordinating) {
    return fail(answer, absl::UnavailableError(absl::StrCat("worker '", self_.worker.name,
                                                            "' does not coordinate; ask again")));
  }
  if (coordinator_->find(from) == nullptr) return answer.set_value({});  // It asks again.
  const std::uint64_t version = coordinator_->view().version + 1;
  // Only when the others know: they would take a worker that just vanishes for lost.
  answer_when_settled(version, from, answer);
  drop(from, Departure::kLeft);
}

void MembershipCore::drop(const WorkerInfo& worker, Departure how) {
  if (!coordinator_->drop(worker, how)) return;
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [&](const Waiting& each) {
                                  return each.worker.incarnation == worker.incarnation;
                                }),
                 waiting_.end());
  remove_from_file(worker, [](MembershipCore&, const absl::Status&) {});
  if (state_ != State::kCoordinating) return;
  published_version_ = coordinator_->view().version;
  adopt(coordinator_->view());
  publish();
  check_settled();
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
  end_all_suspicions();
  after(deadline - scheduler_.now(), [](MembershipCore& core) {
    core.finish_leave(absl::DeadlineExceededError(absl::StrCat(
        "worker '", core.self_.worker.name, "' left, but could not tell all others in time")));
  });
  // First: who looks for the job from then on goes to those who stay.
  remove_from_file(self_.worker,
                   [](MembershipCore& core, const absl::Status&) { core.try_to_leave(); });
}

void MembershipCore::try_to_leave() {
  // Our own list without us is on its way: see check_left().
  if (state_ != State::kLeaving || find_process(view_, self_.worker) == nullptr) return;
  // When all leave at once, each in turn becomes the lowest, and its list makes the next one that.
  const Member* coordinator = lowest_alive();
  if (coordinator != nullptr && coordinator->worker != self_.worker) {
    leave_as_member(coordinator->worker);
  } else if (view_.members.front().worker == self_.worker) {
    leave_as_coordinator();
  } else {
    // The one before it is lost, and may have told others what this worker does not know.
    take_over();
  }
}

// The next one in the list goes on from a list without us; what matters is that it gets that list.
void MembershipCore::leave_as_coordinator() {
  std::vector<Member>& members = view_.members;
  members.erase(std::remove_if(members.begin(), members.end(),
                               [&](const Member& member) {
                                 return member.worker == self_.worker || is_lost(member.worker);
                               }),
                members.end());
  note_left(view_, self_.worker.incarnation);
  ++view_.version;
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
  call(coordinator, "sinew.member.leave", request.SerializeAsString(),
       std::clamp(left, nanoseconds(1), kUpdateTimeout),
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
