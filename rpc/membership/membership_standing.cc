// The part of MembershipCore that finds out whether this worker is still in the job.
//
// Two members that have lost each other may both live: one was stopped, or the network was cut.
// Then each side takes the other off its list, and can never talk to these incarnations again.
// Whoever loses a member asks it, at its address and without a link, what its own list says; the
// coordinator goes on asking those that it took off. When an answer says that this worker is off
// the list there, all whom it knows are asked, and the lighter side is evicted.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/membership_bugs.h"
#include "sinew/rpc/membership/membership_core.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// The coordinator asks again whom it took off the list: he may only sleep.
constexpr nanoseconds kAskAgain = seconds(1);
constexpr nanoseconds kAskFor = minutes(10);
// How often a coordinator looks where workers look for the job.
constexpr nanoseconds kLookAround = seconds(2);
// How often a suspect of a heavier side is asked.
constexpr int kMostSuspectAsks = 3;
constexpr nanoseconds kPollPause = milliseconds(500);
constexpr std::size_t kMostGone = 256;
// All members are asked, since they are counted; those of another side all say the same.
constexpr std::size_t kMostGonePolled = 128;
// How often all are asked again because some did not answer.
constexpr int kMostPollsInARow = 3;
// Who claims that this worker is out when all the others say that it is not is heard again later.
constexpr nanoseconds kClaimPause = seconds(3);
// Who claims to be of a larger side is asked back, one in so long.
constexpr nanoseconds kStrangerPause = seconds(1);
// So many at a time.
constexpr std::size_t kMostAskedAgain = 16;
constexpr std::size_t kMostContacts = 16;
// How often a coordinator does not find itself in the file before it writes itself there.
constexpr int kMissedInFile = 3;

}  // namespace

// ---- What others are told.

// Called whenever the list, or whether this worker is in it, changes.
std::shared_ptr<const Standings> MembershipCore::standings_now() const {
  auto standings = std::make_shared<Standings>();
  standings->own.is_out = state_ == State::kOut && (was_evicted_ || left_.has_value());
  if (!is_in()) return standings;
  const Member* coordinator = lowest_alive();
  if (coordinator != nullptr) {
    standings->own.coordinator_rank = coordinator->worker.rank;
    standings->own.coordinator = coordinator->worker.incarnation;
  }
  for (const GoneMember& gone : gone_) {
    standings->others[gone.member.worker.incarnation] =
        gone.how == Departure::kLeft ? Standing::OfOther::kLeft : Standing::OfOther::kEvicted;
  }
  for (const Member& member : view_.members) {
    // Where the list waits for a decision it lags behind what has become of the links, for good.
    const bool is_out = ballot_.has_value() && is_lost(member.worker);
    standings->others[member.worker.incarnation] =
        is_out ? Standing::OfOther::kEvicted : Standing::OfOther::kMember;
    const bool counts = !is_lost(member.worker) && suspects_.count(member.worker.incarnation) == 0;
    if (counts) ++standings->own.members;
  }
  return standings;
}

Standing MembershipCore::on_asked(const WorkerInfo& asker, const std::string& address,
                                  const Standing& claim) {
  if (claim.of_other == Standing::OfOther::kEvicted && claim.members > 0) {
    post([asker, address, claim](MembershipCore& core) { core.on_claim(asker, address, claim); });
  } else if (claim.of_other == Standing::OfOther::kMember) {
    post([contact = Contact{address, asker.name}](MembershipCore& core) {
      core.on_listed(contact);
    });
  } else if (claim.of_other == Standing::OfOther::kUnknown && claim.members > 0) {
    post([contact = Contact{address, asker.name}, claim](MembershipCore& core) {
      core.on_stranger(contact, claim);
    });
  }
  MutexLock lock(mutex_);
  return closed_ ? Standing() : standings_->of(asker);
}

// Anybody can say that in a member's name: nothing is believed but what the members answer.
void MembershipCore::on_claim(const WorkerInfo& asker, const std::string& address,
                              const Standing& claim) {
  const bool was_there = find_process(view_, asker) != nullptr ||
                         std::any_of(gone_.begin(), gone_.end(), [&](const GoneMember& gone) {
                           return gone.member.worker.incarnation == asker.incarnation;
                         });
  if (!was_there) return on_stranger({address, asker.name}, claim);
  if (scheduler_.now() >= claims_heard_from_) start_poll();
}

bool MembershipCore::may_live(const GoneMember& gone) const {
  return gone.how == Departure::kLost && !gone.is_dead && scheduler_.now() - gone.since < kAskFor;
}

void MembershipCore::note_gone(const MemberView& before) {
  for (const Member& member : before.members) {
    if (find_process(view_, member.worker) != nullptr) continue;
    gone_.push_back({member, how_departed(view_, member.worker.incarnation), scheduler_.now(),
                     member.worker == self_.worker});
  }
  while (gone_.size() > kMostGone) gone_.pop_front();
}

// ---- Who was lost is asked.

void MembershipCore::ask(const Member& member, OnStanding on_standing) {
  const auto answered = std::make_shared<bool>(false);
  const auto once = [answered, on_standing = std::move(on_standing)](
                        MembershipCore& core, const absl::StatusOr<Standing>& standing) {
    if (!std::exchange(*answered, true)) on_standing(core, standing);
  };
  Standing own;
  {
    MutexLock lock(mutex_);
    own = standings_->of(member.worker);
  }
  after(options_.answer_time, [once](MembershipCore& core) {
    once(core, absl::DeadlineExceededError("it did not answer"));
  });
  options_.ask_standing(member, own)
      .on_done([weak = weak_from_this(), once](const Future<Standing>& done) {
        const std::shared_ptr<MembershipCore> self = weak.lock();
        if (self == nullptr) return;
        const std::exception_ptr error = done.error();
        absl::StatusOr<Standing> standing =
            error != nullptr ? absl::StatusOr<Standing>(to_status(error)) : done.value();
        self->post(
            [once, standing = std::move(standing)](MembershipCore& core) { once(core, standing); });
      });
}

void MembershipCore::when_judged(const WorkerInfo& worker, std::function<void()> then) {
  auto shared = std::make_shared<std::function<void()>>(std::move(then));
  strand_->post([weak = weak_from_this(), worker, shared] {
    const std::shared_ptr<MembershipCore> self = weak.lock();
    const bool closed = self == nullptr || self->is_closed();
    closed ? (*shared)() : self->judge(worker, std::move(*shared));
  });
}

void MembershipCore::judge(const WorkerInfo& worker, std::function<void()> then) {
  const Member* member = find_process(view_, worker);
  if (!is_in() || member == nullptr || is_lost(worker) || !options_.ask_standing) return then();
  std::vector<std::function<void()>>& waiting = suspects_[worker.incarnation];
  waiting.push_back(std::move(then));
  if (waiting.size() > 1) return;
  snapshot();
  ask_suspect(*member, kMostSuspectAsks);
}

void MembershipCore::ask_suspect(const Member& member, int times) {
  ask(member, [member, times](MembershipCore& core, const absl::StatusOr<Standing>& standing) {
    const Incarnation suspect = member.worker.incarnation;
    if (core.suspects_.count(suspect) == 0) return;
    if (standing.ok() && standing->of_other == Standing::OfOther::kEvicted) {
      return core.start_poll();
    }
    // Somebody says that this worker is out: it takes nobody for lost before it knows that.
    if (core.is_polling()) return;
    // Who was stopped for about a lease goes on at the moment when the others lose it: each finds
    // that the other one lives. They will drop this worker if it has lost most of its list, so it
    // waits for that, and takes nobody in.
    const Standing own = core.own_standing();
    const bool is_lighter = standing.ok() && standing->of_other == Standing::OfOther::kMember &&
                            outweighs(*standing, own) &&
                            2 * own.members <= core.view_.members.size();
    if (!is_lighter || times <= 1) return core.end_suspicion(suspect);
    core.after(core.options_.answer_time, [member, times](MembershipCore& again) {
      if (again.suspects_.count(member.worker.incarnation) == 0) return;
      again.ask_suspect(member, times - 1);
    });
  });
}

void MembershipCore::end_suspicion(Incarnation incarnation) {
  const auto found = suspects_.find(incarnation);
  if (found == suspects_.end()) return;
  const std::vector<std::function<void()>> waiting = std::move(found->second);
  suspects_.erase(found);
  snapshot();
  for (const std::function<void()>& then : waiting) then();
}

void MembershipCore::end_all_suspicions() {
  while (!suspects_.empty()) end_suspicion(suspects_.begin()->first);
}

// ---- All are asked.

// It has not come to a result, or is to be repeated before that counts.
bool MembershipCore::is_polling() const {
  return poll_.has_value() && (!poll_->is_done() || polls_in_a_row_ > 0);
}

void MembershipCore::start_poll() {
  if (!is_in() || !options_.ask_standing) return end_all_suspicions();
  if (poll_.has_value()) {
    polls_again_ = true;
    return;
  }
  std::vector<Member> members;
  for (const Member& member : view_.members) {
    if (member.worker != self_.worker && !is_lost(member.worker)) members.push_back(member);
  }
  std::vector<Member> gone;
  for (const GoneMember& each : gone_) {
    if (may_live(each) && gone.size() < kMostGonePolled) gone.push_back(each.member);
  }
  for (const Member& member : view_.members) {
    if (ballot_.has_value() && is_lost(member.worker)) gone.push_back(member);
  }
  poll_.emplace(members, gone);
  snapshot();
  members.insert(members.end(), gone.begin(), gone.end());
  for (const Member& member : members) {
    ask(member,
        [worker = member.worker](MembershipCore& core, const absl::StatusOr<Standing>& standing) {
          if (!core.poll_.has_value()) return;
          core.poll_->on_answer(worker, standing);
          core.finish_poll();
        });
  }
  finish_poll();
}

void MembershipCore::finish_poll() {
  if (!poll_->is_done()) return;
  std::optional<WorkerInfo> evicted_by;
  if (is_in()) evicted_by = poll_->evicted_by(self_.worker);
  // Those that are only slow may be of this worker's side.
  const bool again =
      evicted_by.has_value() && poll_->has_silent_member() && ++polls_in_a_row_ < kMostPollsInARow;
  // Not at once: those who ask go on until they have heard.
  after(kPollPause, [again](MembershipCore& core) {
    core.poll_.reset();
    if (std::exchange(core.polls_again_, false) || again) core.start_poll();
  });
  if (again) return;
  polls_in_a_row_ = 0;
  if (evicted_by.has_value()) {
    be_removed(evicted(
        absl::StrCat("worker '", evicted_by->name, "' says that the others took it for lost")));
  } else {
    claims_heard_from_ = scheduler_.now() + kClaimPause;
  }
  snapshot();
  // Those of a lighter side that has gone its own way among them: they are lost here.
  end_all_suspicions();
}

absl::Status MembershipCore::evicted(const std::string& why) const {
  return absl::AbortedError(absl::StrCat(
      "worker '", self_.worker.name, "' was evicted from the job: ", why,
      " and go on without it; what it held, served and waited for is gone, and only a new worker "
      "can join again"));
}

// For the worker that takes the place of this one: its side may have struck the others off the
// file, and nobody need answer at the rendezvous address any more.
void MembershipCore::note_contacts() {
  std::vector<Contact> contacts;
  const auto add = [&](const Member& member) {
    if (member.worker != self_.worker && contacts.size() < kMostContacts) {
      contacts.push_back(Contact::of(member));
    }
  };
  std::for_each(gone_.rbegin(), gone_.rend(), [&](const GoneMember& gone) {
    if (may_live(gone)) add(gone.member);
  });
  for (const Member& member : view_.members) add(member);
  MutexLock lock(mutex_);
  contacts_ = std::move(contacts);
}

std::vector<Contact> MembershipCore::contacts() const {
  MutexLock lock(mutex_);
  return contacts_;
}

// ---- Those that were taken off the list may still be there.

void MembershipCore::ask_the_gone() {
  if (state_ != State::kCoordinating || !options_.ask_standing || std::exchange(asks_gone_, true)) {
    return;
  }
  after(kAskAgain, [](MembershipCore& core) {
    core.asks_gone_ = false;
    if (core.state_ == State::kCoordinating && core.ask_some_gone()) core.ask_the_gone();
  });
}

// Whether there are any.
bool MembershipCore::ask_some_gone() {
  std::vector<GoneMember*> asked;
  for (GoneMember& gone : gone_) {
    if (may_live(gone)) asked.push_back(&gone);
  }
  // Each in its turn.
  std::stable_sort(asked.begin(), asked.end(),
                   [](const GoneMember* a, const GoneMember* b) { return a->asked < b->asked; });
  const bool are_there = !asked.empty();
  asked.resize(std::min(asked.size(), kMostAskedAgain));
  // What this worker says of its list is to be true: leases of those that were cut off together end
  // a beat apart.
  const bool settles = std::any_of(gone_.begin(), gone_.end(), [this](const GoneMember& gone) {
    return gone.how == Departure::kLost && scheduler_.now() - gone.since < 3 * options_.answer_time;
  });
  if (settles || is_unsure()) return are_there;
  for (GoneMember* gone : asked) {
    gone->asked = scheduler_.now();
    const Member& member = gone->member;
    ask(member,
        [worker = member.worker](MembershipCore& core, const absl::StatusOr<Standing>& standing) {
          core.on_gone_answered(worker, standing);
        });
  }
  return are_there;
}

void MembershipCore::on_gone_answered(const WorkerInfo& worker,
                                      const absl::StatusOr<Standing>& standing) {
  // It is nobody's member any more.
  const bool is_out = standing.ok() && standing->is_out;
  if (is_out || says_gone(standing.status())) {
    for (GoneMember& gone : gone_) {
      if (gone.member.worker.incarnation == worker.incarnation) gone.is_dead = true;
    }
  } else if (standing.ok() && standing->of_other == Standing::OfOther::kEvicted) {
    start_poll();
  }
}

// ---- Sides of which neither has members that the other one knows meet where workers look for the
// job.

void MembershipCore::look_around() {
  if (SINEW_MEMBERSHIP_BUG(kStrangersNotMet)) return;
  const bool is_at_only_seed =
      !options_.served_seed.empty() && options_.rendezvous.seeds.size() == 1 && !options_.resolve;
  const bool never_meets = is_at_only_seed || options_.rendezvous.kind == Rendezvous::Kind::kInproc;
  if (!leads() || never_meets || !options_.ask_address || std::exchange(looks_around_, true)) {
    return;
  }
  after(kLookAround, [](MembershipCore& core) {
    core.looks_around_ = false;
    if (!core.leads()) return;
    core.file_ != nullptr ? core.ask_entries() : core.ask_at_seeds();
    core.look_around();
  });
}

void MembershipCore::ask_at_seeds() {
  for (const std::string& seed : dial_addresses(options_.rendezvous)) {
    if (seed == options_.served_seed && !options_.resolve) continue;
    resolve(seed,
            [](MembershipCore& core, const absl::StatusOr<std::vector<std::string>>& addresses) {
              if (!addresses.ok()) return;
              for (const std::string& address : *addresses) {
                if (address != core.self_.address) core.ask_at(Contact::at(address));
              }
            });
  }
}

// Who asks has looked here. Nothing is believed but what somebody says who is asked back.
void MembershipCore::on_stranger(const Contact& contact, const Standing& claim) {
  const bool is_larger = leads() && outweighs(claim, own_standing());
  if (!is_larger || contact.address.empty() || scheduler_.now() < strangers_heard_from_) return;
  strangers_heard_from_ = scheduler_.now() + kStrangerPause;
  ask_at(contact);
}

void MembershipCore::ask_entries() {
  const auto read = std::make_shared<FileRendezvous::Contents>();
  RendezvousFile::OnDone done = then([read](MembershipCore& core, const absl::Status& status) {
    if (!status.ok()) return;
    core.stay_in_file(*read);
    std::size_t asked = 0;
    for (const Member& entry : read->entries) {
      const bool known = find_process(core.view_, entry.worker) != nullptr;
      if (known || asked++ >= kMostAskedAgain) continue;
      core.ask_at(Contact::of(entry));
      // Who begins a fixed world anew waits for this worker, too.
      if (core.ballot_.has_value()) core.invite_at(Contact::of(entry), "");
    }
  });
  file_->read(
      [read, done = std::move(done)](absl::StatusOr<FileRendezvous::Contents> contents) mutable {
        if (contents.ok()) *read = *std::move(contents);
        std::move(done)(contents.status());
      });
}

// Another side may have struck this one off, and whoever comes next would find nobody. Of two sides
// the lighter one has gone before it gets here (on_other_side).
void MembershipCore::stay_in_file(const FileRendezvous::Contents& contents) {
  const bool is_there = std::any_of(
      contents.entries.begin(), contents.entries.end(),
      [this](const Member& entry) { return entry.worker.incarnation == self_.worker.incarnation; });
  if (state_ != State::kCoordinating || is_there) {
    missed_in_file_ = 0;
    return;
  }
  if (++missed_in_file_ < kMissedInFile) return;
  missed_in_file_ = 0;
  const auto ignored = [](MembershipCore& core, const absl::Status& written) {
    // Somebody else has written it since: the next look tells.
    if (!written.ok() && !absl::IsAborted(written)) core.warn(std::string(written.message()));
  };
  const bool is_ours = contents.entries.empty() || contents.instance == view_.instance;
  if (is_ours) {
    file_->publish(self_, view_.instance, then(ignored));
  } else {
    file_->found(self_, contents, view_.instance, then(ignored));
  }
}

void MembershipCore::ask_at(const Contact& contact) {
  options_.ask_address(contact, own_standing())
      .on_done([weak = weak_from_this()](const Future<MembershipOptions::Answerer>& done) {
        const std::shared_ptr<MembershipCore> self = weak.lock();
        if (self == nullptr || done.error() != nullptr) return;
        self->post([answerer = done.value()](MembershipCore& core) {
          core.on_other_side(answerer.worker, answerer.standing);
        });
      });
}

void MembershipCore::on_other_side(const WorkerInfo& worker, const Standing& standing) {
  if (!leads() || standing.members == 0) return;
  if (standing.of_other == Standing::OfOther::kMember) return;
  if (find_process(view_, worker) != nullptr) return;
  if (standing.of_other == Standing::OfOther::kEvicted) start_poll();
  const Standing own = own_standing();
  if (is_unsure() || !outweighs(standing, own)) return;
  // Lists that change are not compared.
  if (std::exchange(other_side_, standing.coordinator) != standing.coordinator) return;
  be_removed(evicted(absl::StrCat("worker '", worker.name,
                                  "', which others find where workers look for the job, and ",
                                  standing.members - 1, " more are the larger side of it")));
}

}  // namespace sinew::internal
