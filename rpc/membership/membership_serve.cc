// The part of MembershipCore that answers workers that want to join.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/membership_core.h"

namespace sinew::internal {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

// A worker that joins or leaves is answered when all others know, but not later than this.
constexpr nanoseconds kSettleTime = seconds(2);
constexpr nanoseconds kLongestPatience = std::chrono::hours(24);

struct Request {
  JoinAsk ask;
  nanoseconds patience{};
};

absl::StatusOr<Request> parse_join(const std::string& body) {
  const absl::StatusOr<proto::JoinRequest> message =
      parse_message<proto::JoinRequest>("a JoinRequest", body);
  if (!message.ok()) return message.status();
  absl::StatusOr<Member> member = decode(message->member());
  if (!member.ok()) return member.status();
  Request request;
  request.ask = {*std::move(member), message->job(), message->world_size()};
  constexpr std::uint64_t kMost =
      std::chrono::duration_cast<std::chrono::microseconds>(kLongestPatience).count();
  request.patience = std::chrono::microseconds(std::min(message->timeout_us(), kMost));
  return request;
}

}  // namespace

void MembershipCore::handle_join(const WorkerInfo& from, const std::string& body,
                                 const Answer& answer) {
  const absl::StatusOr<Request> request = parse_join(body);
  if (!request.ok()) return fail(answer, request.status());
  const WorkerInfo& asker = request->ask.member.worker;
  if (from.name != asker.name || from.incarnation != asker.incarnation) {
    return fail(answer, absl::PermissionDeniedError(absl::StrCat(
                            "worker '", printable(from.name, 128), "' asks to join as '",
                            asker.name, "'; a worker can only join as itself")));
  }
  if (is_called()) {
    proto::JoinResponse response;
    response.set_ask_at(invited_to_.address);
    response.set_ask_name(invited_to_.name);
    return answer.set_value(response.SerializeAsString());
  }
  note_restart(asker);
  // Who may be out is not to gather a job of its own.
  if (is_unsure()) return fail(answer, unsure_text());
  if (state_ == State::kCollecting || state_ == State::kCoordinating) {
    return decide(request->ask, request->patience, answer);
  }
  const Member* coordinator = state_ == State::kMember ? lowest_alive() : nullptr;
  if (coordinator == nullptr) {
    return fail(answer, absl::UnavailableError(
                            absl::StrCat("worker '", self_.worker.name,
                                         "' is joining, leaving or electing itself; ask again")));
  }
  call(coordinator->worker, "sinew.member.admit", body, request->patience,
       [answer](MembershipCore&, const absl::StatusOr<std::string>& reply) {
         if (!reply.ok()) return fail(answer, reply.status());
         answer.try_set_value(*reply);
       });
}

void MembershipCore::handle_admit(const WorkerInfo& from, const std::string& body,
                                  const Answer& answer) {
  const absl::StatusOr<Request> request = parse_join(body);
  if (!request.ok()) return fail(answer, request.status());
  // Also by who would coordinate, and lacks votes.
  if (find_process(view_, from) != nullptr) note_restart(request->ask.member.worker);
  if (state_ != State::kCoordinating) {
    return fail(answer, absl::UnavailableError(absl::StrCat("worker '", self_.worker.name,
                                                            "' does not coordinate; ask again")));
  }
  if (is_unsure()) return fail(answer, unsure_text());
  if (coordinator_->find(from) == nullptr) {
    return fail(answer, absl::PermissionDeniedError(
                            absl::StrCat("worker '", printable(from.name, 128),
                                         "' is no member, so it cannot pass on a JoinRequest")));
  }
  decide(request->ask, request->patience, answer);
}

absl::Status MembershipCore::unsure_text() const {
  return absl::UnavailableError(
      absl::StrCat("worker '", self_.worker.name,
                   "' has lost somebody and finds out which of the two is out; ask again"));
}

void MembershipCore::handle_list(const WorkerInfo& from, const std::string&, const Answer& answer) {
  if (from.incarnation == self_.worker.incarnation) {
    // An address of its own by another name: it learns nothing there.
    return fail(answer, absl::UnavailableError(
                            absl::StrCat("worker '", self_.worker.name, "' asks itself there")));
  }
  if (state_ == State::kPausing) {
    // No list yet, and no job: to whom else waits to found one.
    proto::MemberList none;
    none.set_waits_to_found(true);
    return answer.set_value(none.SerializeAsString());
  }
  const bool knows = state_ == State::kCollecting || state_ == State::kCoordinating ||
                     state_ == State::kMember || state_ == State::kTakingOver || is_called();
  if (!knows) {
    return fail(answer, absl::UnavailableError(absl::StrCat("worker '", self_.worker.name,
                                                            "' is no member now; ask again")));
  }
  const MemberView& view = state_ == State::kCollecting ? coordinator_->view() : view_;
  proto::MemberList list;
  // Who wants to join only needs to hear that there is a job: names and incarnations are for
  // members.
  if (find_process(view, from) != nullptr) {
    encode(view, list);
  } else {
    // Who has been removed without hearing of it, and wants to take over, learns it from this.
    list.set_version(view.version);
    list.set_world_size(view.world_size);
    encode(view.instance, *list.mutable_instance());
  }
  answer.set_value(list.SerializeAsString());
}

void MembershipCore::decide(const JoinAsk& ask, nanoseconds patience, const Answer& answer) {
  if (was_lost(ask.member.worker)) {
    // Members have ended their links with it.
    return fail(answer, absl::FailedPreconditionError(absl::StrCat(
                            "worker '", ask.member.worker.name,
                            "' did not answer for a lease while it joined, and was taken for lost; "
                            "start it again")));
  }
  const Coordinator::Verdict verdict = coordinator_->consider(ask);
  switch (verdict.kind) {
    case Coordinator::Verdict::Kind::kRefused:
      return fail(answer, verdict.refusal);
    case Coordinator::Verdict::Kind::kProbe:
      return probe(ask, patience, verdict.incumbents, answer);
    case Coordinator::Verdict::Kind::kWaits:
      return wait_for_world(verdict.worker, patience, answer);
    case Coordinator::Verdict::Kind::kAdmitted:
      if (state_ == State::kCoordinating) return admit(verdict.worker, answer);
      wait_for_world(verdict.worker, patience, answer);
      complete_world();
  }
}

void MembershipCore::probe(const JoinAsk& ask, nanoseconds patience,
                           const std::vector<WorkerInfo>& incumbents, const Answer& answer) {
  // One after the other: there are two at most, the holders of the name and of the rank.
  const WorkerInfo& incumbent = incumbents.front();
  const bool is_self = incumbent.incarnation == self_.worker.incarnation;
  if (is_self || !options_.probe_lost) return fail(answer, coordinator_->refuse(ask, incumbent));
  const Future<bool> probed = options_.probe_lost(*coordinator_->find(incumbent));
  probed.on_done(
      [weak = weak_from_this(), ask, patience, incumbent, answer](const Future<bool>& result) {
        const std::shared_ptr<MembershipCore> self = weak.lock();
        if (self == nullptr) return;
        const std::exception_ptr error = result.error();
        const absl::StatusOr<bool> is_lost =
            error != nullptr ? absl::StatusOr<bool>(to_status(error)) : result.value();
        self->post([ask, patience, incumbent, answer, is_lost](MembershipCore& core) {
          core.on_probed(ask, patience, incumbent, is_lost, answer);
        });
      });
}

void MembershipCore::on_probed(const JoinAsk& ask, nanoseconds patience,
                               const WorkerInfo& incumbent, const absl::StatusOr<bool>& is_lost,
                               const Answer& answer) {
  const auto changed = absl::UnavailableError("the coordinator has changed; ask again");
  if (state_ != State::kCollecting && state_ != State::kCoordinating) return fail(answer, changed);
  if (coordinator_->find(incumbent) != nullptr) {
    // Mostly it has just died, and the new one was quicker than the news of that.
    if (!is_lost.ok()) {
      return fail(answer, absl::UnavailableError(absl::StrCat(
                              "worker '", incumbent.name, "' with rank ", incumbent.rank,
                              " has that name or rank, and does not answer: it is not known yet "
                              "whether it lives; ask again")));
    }
    if (!*is_lost) return fail(answer, coordinator_->refuse(ask, incumbent));
  }
  lose(incumbent);
  note_restart(ask.member.worker);
  // Somebody else may coordinate by now.
  if (!coordinator_.has_value()) return fail(answer, changed);
  decide(ask, patience, answer);
}

void MembershipCore::wait_for_world(const WorkerInfo& worker, nanoseconds patience,
                                    const Answer& answer) {
  const auto earlier = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
    return each.worker.incarnation == worker.incarnation;
  });
  if (earlier != waiting_.end()) {
    fail(earlier->answer, absl::AbortedError("this worker has asked to join again"));
    waiting_.erase(earlier);
  }
  waiting_.push_back({worker, answer, scheduler_.now()});
  after(patience, [worker, since = scheduler_.now()](MembershipCore& core) {
    core.on_patience_over(worker, since);
  });
}

void MembershipCore::on_patience_over(const WorkerInfo& worker, TimePoint since) {
  if (state_ != State::kCollecting) return;
  const auto waiting = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
    return each.worker.incarnation == worker.incarnation && each.since == since;
  });
  if (waiting == waiting_.end()) return;
  fail(waiting->answer, coordinator_->missing_text(scheduler_.now() - since));
  drop(worker, Departure::kLost);
}

void MembershipCore::complete_world() {
  state_ = State::kCoordinating;
  for (const Waiting& each : waiting_) {
    acknowledged_[each.worker.incarnation] = coordinator_->view().version;
  }
  published_version_ = coordinator_->view().version;
  adopt(coordinator_->view());
  std::vector<Waiting> waiting;
  waiting.swap(waiting_);
  for (const Waiting& each : waiting) answer_join(each.worker, each.answer);
  joined_->try_set_value();
}

void MembershipCore::admit(const WorkerInfo& worker, const Answer& answer) {
  const std::uint64_t version = coordinator_->view().version;
  acknowledged_[worker.incarnation] = version;
  answer_when_settled(version, worker, answer);
  renew();
  check_settled();
}

void MembershipCore::answer_when_settled(std::uint64_t version, const WorkerInfo& worker,
                                         const Answer& answer) {
  settling_.push_back({version, worker, answer});
  after(kSettleTime, [version](MembershipCore& core) { core.settle(version); });
}

// Answers who joined or left with a version or with an older one, whoever knows them by now.
void MembershipCore::settle(std::uint64_t version) {
  std::vector<Settling> settled;
  for (auto each = settling_.begin(); each != settling_.end();) {
    if (each->version > version) {
      ++each;
      continue;
    }
    settled.push_back(std::move(*each));
    each = settling_.erase(each);
  }
  for (const Settling& each : settled) answer_settled(each);
}

void MembershipCore::answer_settled(const Settling& settled) {
  if (how_departed(view_, settled.worker.incarnation) == Departure::kLeft) {
    settled.answer.try_set_value({});
  } else {
    answer_join(settled.worker, settled.answer);
  }
}

void MembershipCore::check_settled() {
  std::uint64_t known = view_.version;
  const bool ours = published_version_ == view_.version;
  for (const Member& member : view_.members) {
    const bool joins_now = std::any_of(
        settling_.begin(), settling_.end(),
        [&](const Settling& each) { return each.worker.incarnation == member.worker.incarnation; });
    const bool counts =
        ours && member.worker != self_.worker && !is_lost(member.worker) && !joins_now;
    if (!counts) continue;
    const auto acknowledged = acknowledged_.find(member.worker.incarnation);
    known = std::min(known, acknowledged == acknowledged_.end() ? 0 : acknowledged->second);
  }
  settle(known);
}

void MembershipCore::answer_join(const WorkerInfo& worker, const Answer& answer) {
  const bool is_member = std::any_of(
      view_.members.begin(), view_.members.end(),
      [&](const Member& member) { return member.worker.incarnation == worker.incarnation; });
  if (!is_member) {
    return fail(answer, absl::UnavailableError("the job took this worker for lost; ask again"));
  }
  proto::JoinResponse response;
  encode(view_, *response.mutable_members());
  response.set_rank(worker.rank);
  answer.try_set_value(response.SerializeAsString());
}

void MembershipCore::fail_waiting(const absl::Status& status) {
  std::vector<Waiting> waiting;
  waiting.swap(waiting_);
  for (const Waiting& each : waiting) fail(each.answer, status);
  std::vector<Settling> settling;
  settling.swap(settling_);
  for (const Settling& each : settling) fail(each.answer, status);
}

}  // namespace sinew::internal
