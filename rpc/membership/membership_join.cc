// The part of MembershipCore that joins: it looks for a member, asks it, or founds the job.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/membership_bugs.h"
#include "sinew/rpc/membership/membership_core.h"
#include "sinew/rpc/membership/peer_membership.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr nanoseconds kFirstBackoff = milliseconds(50);
constexpr nanoseconds kLongestBackoff = seconds(1);
// To find out whether somebody is there at all.
// We wait for this much longer than we say, since the coordinator's answer at the deadline names
// who is missing and our own would not.
constexpr nanoseconds kAnswerGrace = seconds(1);

bool worth_another_try(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsNotFound(status) || absl::IsCancelled(status) ||
         absl::IsAborted(status);
}

std::string identity_of(const WorkerInfo& worker) {
  proto::WorkerIdentity identity;
  identity.set_name(worker.name);
  identity.set_rank(worker.rank);
  identity.set_incarnation(worker.incarnation.value);
  return identity.SerializeAsString();
}

void ignore_end(MembershipCore&, const absl::Status&) {}

}  // namespace

Future<void> MembershipCore::join_async() {
  const Promise<void> joined(scheduler_.executor());
  post([joined](MembershipCore& core) {
    if (core.state_ != State::kIdle) {
      joined.set_error(RpcError(ErrorCode::kFailedPrecondition,
                                "this worker has joined, or tried to, already; make a new one"));
      return;
    }
    core.joined_ = joined;
    core.start_join();
  });
  return joined.future();
}

void MembershipCore::start_join() {
  deadline_ = deadline_after(scheduler_.now(), options_.timeout);
  backoff_ = kFirstBackoff;
  after(options_.timeout, [](MembershipCore& core) { core.on_join_deadline(); });
  begin_search();
}

void MembershipCore::begin_search() {
  const bool fixed = options_.rendezvous.world_size > 0;
  const bool waits_there = fixed ? options_.rendezvous.rank == 0 : !options_.served_seed.empty();
  if (!waits_there || file_) {
    seek();
  } else if (options_.rendezvous.founds && (fixed || options_.founds_at_once)) {
    // Until all ranks of a fixed world have come a job that lives can call this worker in.
    found();
  } else {
    pause_before_founding();
  }
}

void MembershipCore::pause_before_founding() {
  if (options_.rendezvous.founds && SINEW_MEMBERSHIP_BUG(kFoundsAtOnce)) return found();
  state_ = State::kPausing;
  const TimePoint now = scheduler_.now();
  const nanoseconds longest = options_.timeout / 2;
  const nanoseconds pause =
      options_.contacts.has_value() ? longest : std::min(PeerMembership::kFoundingPause, longest);
  founds_at_ = options_.rendezvous.founds ? now + pause : TimePoint::max();
  look_at_seeds();
  end_pause();
}

void MembershipCore::end_pause() {
  if (state_ != State::kPausing || founds_at_ == TimePoint::max()) return;
  const TimePoint now = scheduler_.now();
  if (now >= founds_at_) return found();
  after(founds_at_ - now, [](MembershipCore& core) { core.end_pause(); });
}

void MembershipCore::on_sought() {
  post([](MembershipCore& core) { core.put_off_founding(); });
}

void MembershipCore::put_off_founding() {
  if (state_ != State::kPausing || founds_at_ == TimePoint::max()) return;
  // Anybody can give such signs, for ever.
  const TimePoint latest = deadline_ - options_.timeout / 2;
  founds_at_ =
      std::max(founds_at_, std::min(latest, scheduler_.now() + PeerMembership::kPauseAfterSign));
}

void MembershipCore::found() {
  if (self_.worker.rank < 0) self_.worker.rank = 0;
  MemberView view{1, options_.rendezvous.world_size, {self_}};
  view.instance = founding_.valid() ? founding_ : draw_job_instance();
  coordinator_.emplace(options_.job, std::move(view), false);
  // What it has voted for as a joiner was of another job.
  ballot_.reset();
  state_ = State::kCollecting;
  if (options_.rendezvous.world_size == 0) say_alone(nanoseconds(0));
  if (coordinator_->complete()) complete_world();
}

void MembershipCore::seek() {
  state_ = State::kSeeking;
  tried_ = 0;
  refused_ = 0;
  has_met_member_ = false;
  candidates_.clear();
  sent_to_.clear();
  file_contents_ = {};
  if (!is_invited() && options_.contacts.has_value()) candidates_ = *options_.contacts;
  if (!is_invited()) return file_ != nullptr ? search_file() : ask_seeds();
  candidates_.push_back(invited_to_);
  seek_next();
}

void MembershipCore::search_file() {
  const auto read = std::make_shared<FileRendezvous::Contents>();
  RendezvousFile::OnDone done = then([read](MembershipCore& core, const absl::Status& status) {
    if (core.state_ != State::kSeeking) return;
    if (!status.ok()) return core.fail_join(status);
    core.file_contents_ = std::move(*read);
    for (const std::string& warning : core.file_contents_.warnings) core.warn(warning);
    for (const Member& entry : core.file_contents_.entries) {
      core.candidates_.push_back(Contact::of(entry));
    }
    core.seek_next();
  });
  file_->read(
      [read, done = std::move(done)](absl::StatusOr<FileRendezvous::Contents> contents) mutable {
        if (contents.ok()) *read = *std::move(contents);
        std::move(done)(contents.status());
      });
}

void MembershipCore::seek_next() {
  if (state_ != State::kSeeking) return;
  if (scheduler_.now() >= deadline_) {
    fail_join(never_answered());
    return;
  }
  if (candidates_.empty()) {
    may_found_by_file() ? found_by_file() : seek_again();
    return;
  }
  const Contact contact = std::move(candidates_.back());
  candidates_.pop_back();
  ++tried_;
  if (contact.address == self_.address) {
    // This worker listens there, so whoever wrote it is dead.
    ++refused_;
    seek_next();
    return;
  }
  const nanoseconds left = deadline_ - scheduler_.now();
  call_address(contact, "sinew.member.list", {}, std::min(left, kGreetTimeout),
               [contact](MembershipCore& core, const absl::StatusOr<std::string>& reply) {
                 if (core.state_ != State::kSeeking) return;
                 proto::MemberList list;
                 if (!reply.ok()) return core.on_candidate_failed(contact.address, reply.status());
                 if (!list.ParseFromString(*reply) || list.waits_to_found()) {
                   return core.on_candidate_failed(
                       contact.address,
                       absl::UnavailableError("I wait to found the job; ask again"));
                 }
                 core.has_met_member_ = true;
                 core.ask_to_join(contact);
               });
}

bool MembershipCore::is_contact(const std::string& address) const {
  if (!options_.contacts.has_value()) return false;
  return std::any_of(options_.contacts->begin(), options_.contacts->end(),
                     [&](const Contact& contact) { return contact.address == address; });
}

void MembershipCore::on_candidate_failed(const std::string& address, const absl::Status& status) {
  last_failure_ = absl::StrCat("'", address, "' said: ", status.message());
  if (absl::IsNotFound(status)) ++refused_;
  // A file may hold addresses that others use by now, and what this worker's predecessor knew may
  // be old too, so a refusal there says nothing about the job.
  if (is_refusal(status) && !file_ && !is_contact(address)) {
    fail_join(status);
    return;
  }
  seek_next();
}

void MembershipCore::ask_to_join(const Contact& contact) {
  const nanoseconds left = std::max(deadline_ - scheduler_.now(), nanoseconds(0));
  proto::JoinRequest request;
  encode(self_, *request.mutable_member());
  request.set_job(options_.job);
  request.set_world_size(options_.rendezvous.world_size);
  request.set_timeout_us(static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(left).count()));
  asking_ = has_asked_ = true;
  call_address(
      contact, "sinew.member.join", request.SerializeAsString(),
      std::min(left, nanoseconds::max() - kAnswerGrace) + kAnswerGrace,
      [address = contact.address](MembershipCore& core, const absl::StatusOr<std::string>& reply) {
        core.asking_ = false;
        if (core.state_ != State::kSeeking) return;
        if (reply.ok() || !worth_another_try(reply.status())) {
          core.on_join_reply(reply);
        } else {
          core.on_candidate_failed(address, reply.status());
        }
      });
}

void MembershipCore::on_join_reply(const absl::StatusOr<std::string>& reply) {
  if (!reply.ok()) {
    fail_join(reply.status());
    return;
  }
  const absl::StatusOr<proto::JoinResponse> response =
      parse_message<proto::JoinResponse>("the answer to a JoinRequest", *reply);
  if (!response.ok()) {
    fail_join(response.status());
    return;
  }
  if (!response->ask_at().empty()) {
    absl::StatusOr<Contact> next = decode_ask_at(*response);
    if (!next.ok()) return fail_join(next.status());
    if (sent_to_.insert(next->address).second) candidates_.push_back(*std::move(next));
    return seek_next();
  }
  absl::StatusOr<MemberView> view = decode(response->members());
  if (!view.ok()) {
    fail_join(view.status());
    return;
  }
  finish_join(*std::move(view));
}

// A member has this worker on its list: whoever let it in could not tell it any more.
void MembershipCore::on_listed(const Contact& contact) {
  const bool looks = state_ == State::kSeeking || state_ == State::kPausing;
  if (!looks || contact.address.empty() || std::exchange(fetches_list_, true)) return;
  call_address(contact, "sinew.member.list", {}, kGreetTimeout,
               [](MembershipCore& core, const absl::StatusOr<std::string>& reply) {
                 core.fetches_list_ = false;
                 core.on_list_fetched(reply);
               });
}

void MembershipCore::on_list_fetched(const absl::StatusOr<std::string>& reply) {
  const bool looks = state_ == State::kSeeking || state_ == State::kPausing;
  proto::MemberList list;
  if (!looks || !reply.ok() || !list.ParseFromString(*reply)) return;
  absl::StatusOr<MemberView> view = decode(list);
  if (view.ok() && find_process(*view, self_.worker) != nullptr) finish_join(*std::move(view));
}

void MembershipCore::finish_join(MemberView view) {
  const auto me = std::find_if(view.members.begin(), view.members.end(), [&](const Member& member) {
    return member.worker.name == self_.worker.name &&
           member.worker.incarnation == self_.worker.incarnation;
  });
  if (me == view.members.end()) {
    fail_join(
        absl::InternalError("the member list that answered the JoinRequest lacks this worker"));
    return;
  }
  if (ballot_.has_value() && term_of(view.version) < ballot_->term()) return seek_again();
  self_.worker.rank = me->worker.rank;
  state_ = State::kMember;
  adopt(std::move(view));
  if (file_ != nullptr) {
    publish_to_file();
  } else {
    joined_->try_set_value();
  }
}

// Joined only then: whoever was in the file alone may leave now, and others must find the job.
void MembershipCore::publish_to_file() {
  file_->publish(self_, view_.instance,
                 then([](MembershipCore& core, const absl::Status& published) {
                   if (!published.ok()) core.warn(std::string(published.message()));
                   core.joined_->try_set_value();
                 }));
}

// At the end of a round over a file's entries.
bool MembershipCore::may_found_by_file() const {
  if (file_ == nullptr || is_invited()) return false;
  const bool fixed = options_.rendezvous.world_size > 0;
  // An entry that merely does not answer may be that of a busy worker: two jobs would come of it.
  // Rank 0 of a fixed world cannot wait for it, since an old file would keep the job from ever
  // starting.
  const bool needs_no_refusal = fixed && !options_.contacts.has_value();
  return options_.rendezvous.founds && !has_met_member_ && (needs_no_refusal || refused_ == tried_);
}

// So that this worker is the one whom others find.
void MembershipCore::found_by_file() {
  Member founder = self_;
  if (founder.worker.rank < 0) founder.worker.rank = 0;
  founding_ = draw_job_instance();
  file_->found(founder, file_contents_, founding_,
               then([founder](MembershipCore& core, const absl::Status& founded) {
                 if (core.state_ == State::kSeeking && founded.ok()) return core.found();
                 // Its time is over.
                 if (founded.ok()) core.remove_from_file(founder.worker, ignore_end);
                 if (core.state_ != State::kSeeking) return;
                 absl::IsAborted(founded) ? core.seek_again() : core.fail_join(founded);
               }));
}

void MembershipCore::seek_again() {
  if (is_invited() && refused_ > 0) {
    // Whoever called this worker in is gone.
    invited_to_ = {};
    return begin_search();
  }
  const nanoseconds left = deadline_ - scheduler_.now();
  after(std::min(backoff_, left), [](MembershipCore& core) {
    if (core.state_ == State::kSeeking && !core.asking_) core.seek();
  });
  backoff_ = std::min(backoff_ * 2, kLongestBackoff);
}

void MembershipCore::on_join_deadline() {
  if (state_ == State::kCollecting) {
    absl::Status missing = coordinator_->missing_text(options_.timeout);
    missing = absl::Status(missing.code(),
                           absl::StrCat(missing.message(), loopback_hint(options_.rendezvous)));
    fail_waiting(missing);
    fail_join(missing);
  } else if (state_ == State::kPausing || (state_ == State::kSeeking && !asking_)) {
    fail_join(never_answered());
  }
}

absl::Status MembershipCore::never_answered() const {
  std::string text = absl::StrCat("worker '", self_.worker.name, "' could not join ", job_text(),
                                  " within ", seconds_text(options_.timeout), ": ");
  if (file_ && tried_ == 0) {
    absl::StrAppend(&text, "the rendezvous file '", file_->path(), "' names no worker of the job",
                    "; start rank 0 and make sure that all workers see the same file");
  } else if (file_) {
    absl::StrAppend(&text, "none of the ", tried_, " workers in the rendezvous file '",
                    file_->path(), "' let it in; remove the file if they are of an old job");
  } else {
    const bool fixed = options_.rendezvous.world_size > 0;
    absl::StrAppend(&text, fixed ? "rank 0" : "a member", " at '",
                    absl::StrJoin(dial_addresses(options_.rendezvous), "' or '"), "' never ",
                    state_ == State::kPausing ? "called" : "answered", "; start ",
                    fixed ? "it"
                          : "the worker that founds the job (rank 0, or one "
                            "with WorkerOptions::found_job)",
                    ", or correct the rendezvous address", loopback_hint(options_.rendezvous));
  }
  if (!last_failure_.empty()) absl::StrAppend(&text, "; last try: ", last_failure_);
  return absl::DeadlineExceededError(text);
}

void MembershipCore::fail_join(const absl::Status& status) {
  const bool was_published = state_ == State::kCollecting;
  state_ = State::kOut;
  coordinator_.reset();
  const auto fail = [status](MembershipCore& core, const absl::Status&) {
    if (core.joined_) core.joined_->try_set_error(make_error(status));
  };
  was_published ? remove_from_file(self_.worker, fail) : fail(*this, absl::OkStatus());
}

// The job runs already and its coordinator has found us at the rendezvous address, where we wait
// for others as rank 0 does. Those who asked us meanwhile come back and find the job through us.
void MembershipCore::handle_invite(const WorkerInfo& from, const std::string& body,
                                   const Answer& answer) {
  const absl::StatusOr<proto::MemberList> list =
      parse_message<proto::MemberList>("a MemberList", body);
  absl::StatusOr<MemberView> view = list.ok() ? decode(*list) : list.status();
  if (!view.ok()) {
    answer.set_error(make_error(view.status()));
    return;
  }
  const Member* inviter = find_process(*view, from);
  if (is_in() && inviter != nullptr && find_process(view_, from) != nullptr) {
    // Of the same job: so nobody waits here.
    answer.set_value(identity_of(self_.worker));
    return;
  }
  if (is_in()) {
    warn_of_another_job(absl::StrCat("worker '", printable(from.name, 128), "'"));
    answer.set_error(make_error(absl::AlreadyExistsError(
        absl::StrCat("worker '", self_.worker.name, "' is in a job of its own, which is ",
                     job_text(), " too"))));
    return;
  }
  // Who coordinates is asked rather than who would like to.
  const bool leads = inviter != nullptr && inviter == &view->members.front();
  const bool waits = state_ == State::kCollecting || state_ == State::kPausing ||
                     (is_called() && leads && inviter->address != invited_to_.address);
  const bool fits =
      waits && inviter != nullptr && view->world_size == options_.rendezvous.world_size;
  if (!fits) {
    answer.set_error(make_error(absl::FailedPreconditionError(
        absl::StrCat("worker '", self_.worker.name, "' does not wait for an invitation"))));
    return;
  }
  answer.set_value(identity_of(self_.worker));
  fail_waiting(absl::UnavailableError("rank 0 joins a job that runs already; ask again"));
  coordinator_.reset();
  const bool was_called = is_called();
  invited_to_ = Contact::of(*inviter);
  // Otherwise from the next round on.
  if (!was_called) seek();
}

}  // namespace sinew::internal
