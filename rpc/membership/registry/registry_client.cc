#include "sinew/rpc/membership/registry/registry_client.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace sinew::internal::registry {

using State = MembershipState;

namespace {

// Before a join or a gather gives up.
constexpr Time kLastAsk = std::chrono::milliseconds(500);

/// Gathers of the whole job go on while the registrar is away.
bool outlasts_absence(const Enter& gather) { return gather.names.empty(); }

}  // namespace

RegistryClient::RegistryClient(ClientOptions options, Time now)
    : options_(std::move(options)),
      clock_(now, 2 * options_.tick),
      heard_(now),
      beat_(options_.beat),
      next_beat_(now),
      ends_joining_(now + options_.join_for) {}

// --- The registrar ------------------------------------------------------------------------------

ClientEffects RegistryClient::connected(Incarnation registrar, Time now) {
  ClientEffects out;
  heard_ = clock_.pass(now);
  if (is_over()) return out;
  registrar_ = registrar;
  echo_ = 0;
  if (version_.registrar != registrar) go_away(out);
  // Another one answers in its place: so it has ended, if it was a member.
  if (version_.registrar != registrar) {
    drop(version_.registrar, Gone::kProcessEnded, "another registrar answers in its place", out);
  }
  beat(out);
  return out;
}

void RegistryClient::note_lease(Time lease) {
  constexpr Time kShortest = std::chrono::milliseconds(10);
  beat_ = std::min(options_.beat, std::max(lease / 7, kShortest));
  next_beat_ = std::min(next_beat_, clock_.time() + beat_);
}

ClientEffects RegistryClient::disconnected(Time now) {
  ClientEffects out;
  clock_.pass(now);
  registrar_ = {};
  go_away(out);
  return out;
}

void RegistryClient::ask(Request request, ClientEffects& out) const {
  if (registrar_.value != 0) out.push_back(Ask{echo_, std::move(request)});
}

void RegistryClient::ask_for_place(ClientEffects& out) const {
  if (ends_leaving_.has_value()) return ask(Leave{}, out);
  if (state_ == State::kJoining) {
    return ask(Join{options_.self, options_.job, options_.world_size}, out);
  }
  if (version_.registrar == registrar_) return ask(Renew{version_}, out);
  Return back{
      members_.at(self()), options_.job, options_.world_size, instance_, version_, joined_, {}};
  for (const auto& [incarnation, member] : members_) {
    if (incarnation != self()) back.known.push_back(member.worker);
  }
  ask(std::move(back), out);
}

void RegistryClient::beat(ClientEffects& out) {
  next_beat_ = clock_.time() + beat_;
  // Asked once before the end: so the error can name the missing workers.
  const Time last = ends_joining_ - kLastAsk;
  const bool is_late = state_ == State::kJoining && clock_.time() < last && next_beat_ > last;
  if (is_late) next_beat_ = last;
  ask_for_place(out);
  if (version_.registrar != registrar_) return;
  for (const Incarnation member : lost_) {
    if (members_.count(member) > 0 && !SINEW_REGISTRY_BUG(kTakesBack))
      ask(Report{member, "the link has ended"}, out);
  }
  for (const auto& [id, pending] : pending_) ask(pending.request, out);
}

ClientEffects RegistryClient::handle(Incarnation from, std::uint64_t token, const Answer& answer,
                                     Time now) {
  ClientEffects out;
  clock_.pass(now);
  const bool is_asked = registrar_.value != 0 && from == registrar_;
  if (is_over() || (!is_asked && !SINEW_REGISTRY_BUG(kAnybodyIsBelieved))) return out;
  heard_ = clock_.time();
  if (is_asked) echo_ = std::max(echo_, token);
  std::visit(
      [&](const auto& each) {
        using Kind = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<Kind, List> || std::is_same_v<Kind, Update>) {
          take(each, out);
        } else if constexpr (std::is_same_v<Kind, Finished>) {
          finish(each, out);
        } else if constexpr (std::is_same_v<Kind, Wait>) {
          waits_because_ = each.why;
        } else if constexpr (std::is_same_v<Kind, Refused>) {
          if (state_ == State::kJoining) enter(State::kLeft, each.why, out);
        } else if constexpr (std::is_same_v<Kind, Out>) {
          if (ends_leaving_.has_value() && each.why == Gone::kLeft) {
            return enter(State::kLeft, absl::OkStatus(), out);
          }
          be_out(absl::StrCat(registrar_text(), " says: ", each.reason), out);
        } else if constexpr (std::is_same_v<Kind, Missing>) {
          const auto pending = pending_.find(each.id);
          if (pending != pending_.end()) pending->second.missing = each.names;
        } else if constexpr (!std::is_same_v<Kind, Renewed>) {
          ask_for_place(out);
        }
      },
      answer);
  const bool is_heard = state_ == State::kSuspected && version_.registrar == registrar_;
  if (is_heard &&
      (std::holds_alternative<Renewed>(answer) || std::holds_alternative<List>(answer) ||
       std::holds_alternative<Update>(answer))) {
    is_away_ = false;
    enter(State::kMember, absl::OkStatus(), out);
  }
  return out;
}

ClientEffects RegistryClient::refuse(const absl::Status& why, Time now) {
  ClientEffects out;
  clock_.pass(now);
  if (state_ == State::kJoining) enter(State::kLeft, why, out);
  return out;
}

void RegistryClient::be_out(const std::string& reason, ClientEffects& out) {
  const bool is_left = state_ == State::kJoining || ends_leaving_.has_value();
  const absl::Status why = absl::AbortedError(
      absl::StrCat("worker '", options_.self.worker.name, "' was evicted from the job: ", reason));
  enter(is_left ? State::kLeft : State::kEvicted, why, out);
}

// The list stands still; what only the registrar can do fails, but for what may wait for it.
void RegistryClient::go_away(ClientEffects& out) {
  if (is_over() || is_away_ || state_ == State::kJoining) return;
  is_away_ = true;
  away_since_ = clock_.time();
  enter(State::kSuspected, absence(), out);
  if (!SINEW_REGISTRY_BUG(kNeverAway)) fail_for_absence(false, out);
}

absl::Status RegistryClient::absence() const {
  return away_error(absl::StrCat(
      registrar_text(), " does not answer: no worker can join or be evicted until it is back"));
}

void RegistryClient::fail_for_absence(bool all, ClientEffects& out) {
  const std::map<std::uint64_t, Pending> pending = pending_;
  for (const auto& [id, each] : pending) {
    if (all || !outlasts_absence(each.request)) end(id, absence(), {}, out);
  }
}

std::string RegistryClient::registrar_text() const {
  return absl::StrCat("the registrar at ", options_.address);
}

ClientEffects RegistryClient::tick(Time now) {
  ClientEffects out;
  const Time time = clock_.pass(now);
  if (is_over()) return out;
  // Some ticks, where beats are short: this process may have been the slow one.
  const Time patience = std::max(2 * beat_ + beat_ / 2, 6 * options_.tick);
  if (time >= heard_ + patience) go_away(out);
  time_out(out);
  if (!is_over() && time >= next_beat_) beat(out);
  return out;
}

ClientEffects RegistryClient::renew(Time now) {
  ClientEffects out;
  clock_.pass(now);
  if (!is_over()) ask_for_place(out);
  return out;
}

ClientEffects RegistryClient::cancel(std::uint64_t id, const absl::Status& why, Time now) {
  ClientEffects out;
  clock_.pass(now);
  if (pending_.count(id) == 0) return out;
  ask(Cancel{id}, out);
  end(id, why, {}, out);
  return out;
}

std::string RegistryClient::why_late(const Pending& gather) const {
  if (gather.missing.empty() && is_away_) return absl::StrCat(registrar_text(), " did not answer");
  return absl::StrCat(gather.missing.empty() ? "others" : gather.missing, " had not come after ",
                      absl::FormatDuration(absl::FromChrono(gather.patience)),
                      is_away_ ? absl::StrCat(", when ", registrar_text(), " was heard last") : "");
}

void RegistryClient::time_out(ClientEffects& out) {
  const Time time = clock_.time();
  if (state_ == State::kJoining && time >= ends_joining_) {
    ask(Leave{}, out);
    std::string why = waits_because_;
    if (why.empty()) {
      why = absl::StrCat("no answer at ", options_.address,
                         nobody_because_.empty() ? "" : absl::StrCat(" (", nobody_because_, ")"),
                         options_.hint);
    }
    const std::string text =
        absl::StrCat("could not join job '", options_.job, "': ", why, options_.hint_for_all);
    return enter(State::kLeft, absl::DeadlineExceededError(text), out);
  }
  if (ends_leaving_.has_value() && time >= *ends_leaving_ && !SINEW_REGISTRY_BUG(kLeaveWaits)) {
    return enter(State::kLeft,
                 absl::UnavailableError(
                     absl::StrCat(registrar_text(), " did not answer: the others were not told")),
                 out);
  }
  if (is_away_ && time >= away_since_ + options_.away_for) fail_for_absence(true, out);
  const std::map<std::uint64_t, Pending> pending = pending_;
  for (const auto& [id, each] : pending) {
    if (time < each.deadline) continue;
    ask(Cancel{id}, out);
    end(id, absl::DeadlineExceededError(why_late(each)), {}, out);
  }
}

void RegistryClient::enter(State state, const absl::Status& why, ClientEffects& out) {
  if (state_ == state) return;
  state_ = state;
  out.push_back(StateNews{state, why});
  if (!is_over()) return;
  const absl::Status reason = why.ok() ? absl::CancelledError("this worker has left") : why;
  while (!pending_.empty()) end(pending_.begin()->first, reason, {}, out);
}

ClientEffects RegistryClient::leave(Time now) {
  ClientEffects out;
  const Time time = clock_.pass(now);
  if (is_over() || ends_leaving_.has_value()) return out;
  // Who is away already is not waited for.
  ends_leaving_ = is_away_ ? time : time + options_.leave_for;
  ask(Leave{}, out);
  if (is_away_) time_out(out);
  if (state_ == State::kJoining) enter(State::kLeft, absl::CancelledError("it has left"), out);
  return out;
}

// --- The list -----------------------------------------------------------------------------------

void RegistryClient::take(const List& list, ClientEffects& out) {
  const bool is_same = list.version.registrar == version_.registrar;
  const bool is_in =
      std::any_of(list.members.begin(), list.members.end(),
                  [this](const Record& each) { return each.worker.incarnation == self(); });
  const bool is_old =
      is_same ? list.version.count <= version_.count : list.version.epoch < version_.epoch;
  if (list.version.registrar != registrar_ || !is_in || is_old) return;
  std::set<Incarnation> listed;
  for (const Record& member : list.members) listed.insert(member.worker.incarnation);
  const std::map<Incarnation, Record> before = members_;
  for (const auto& [incarnation, member] : before) {
    if (listed.count(incarnation) > 0) continue;
    if (list.is_returning && !SINEW_REGISTRY_BUG(kNamedAreLost)) {
      awaited_.insert(incarnation);
    } else {
      drop(incarnation, Gone::kUnknown, to_text(Gone::kUnknown), out);
    }
  }
  version_ = list.version;
  instance_ = list.instance;
  if (state_ == State::kJoining) joined_ = list.version;
  for (const Record& member : list.members) add(member, out);
  if (state_ == State::kJoining) enter(State::kMember, absl::OkStatus(), out);
  if (!is_same) beat(out);
}

void RegistryClient::take(const Update& update, ClientEffects& out) {
  if (state_ == State::kJoining || update.version.registrar != registrar_ ||
      update.version.registrar != version_.registrar || update.version.count <= version_.count) {
    return;
  }
  if (update.since > version_.count) return ask_for_place(out);
  for (std::size_t i = version_.count - update.since; i < update.changes.size(); ++i) {
    apply(update.changes[i], out);
  }
  version_ = update.version;
}

void RegistryClient::apply(const Change& change, ClientEffects& out) {
  const Incarnation member = change.member.worker.incarnation;
  if (change.gone.has_value()) return drop(member, *change.gone, change.reason, out);
  if (member.value != 0) return add(change.member, out);
  const std::set<Incarnation> awaited = std::exchange(awaited_, {});
  for (const Incarnation each : awaited) {
    drop(each, Gone::kNotReturned, to_text(Gone::kNotReturned), out);
  }
}

void RegistryClient::add(const Record& member, ClientEffects& out) {
  const Incarnation incarnation = member.worker.incarnation;
  awaited_.erase(incarnation);
  const bool is_new = members_.count(incarnation) == 0;
  members_[incarnation] = member;
  if (!is_new || incarnation == self()) return;
  // Who was lost is never taken back: the registrar judges between the two.
  const bool was_lost = has_lost(incarnation) && !SINEW_REGISTRY_BUG(kTakesBack);
  if (was_lost) return ask(Report{incarnation, "it was lost before"}, out);
  out.push_back(MemberNews{member, std::nullopt, ""});
}

void RegistryClient::drop(Incarnation member, Gone why, const std::string& reason,
                          ClientEffects& out) {
  awaited_.erase(member);
  const auto found = members_.find(member);
  if (found == members_.end() || member == self()) return;
  out.push_back(MemberNews{found->second, why, reason});
  members_.erase(found);
  lost_.insert(member);
}

ClientEffects RegistryClient::lost(Incarnation member, const std::string& reason, Time now) {
  ClientEffects out;
  clock_.pass(now);
  if (is_over() || member == self() || !lost_.insert(member).second) return out;
  if (members_.count(member) > 0) ask(Report{member, reason}, out);
  return out;
}

// --- Gathers ------------------------------------------------------------------------------------

ClientEffects RegistryClient::gather(std::string key, std::vector<std::string> names,
                                     std::string value, Time timeout, Time now) {
  ClientEffects out;
  const Time time = clock_.pass(now);
  const std::uint64_t id = next_id_++;
  const Enter request{id, std::move(key), std::move(names), std::move(value)};
  pending_[id] = {request, time + timeout, timeout, ""};
  // Asked once before the end: so the error can name the missing workers.
  next_beat_ = std::min(next_beat_, time + timeout - std::min(kLastAsk, timeout / 2));
  if (state_ == State::kMember || (state_ == State::kSuspected && outlasts_absence(request))) {
    ask(request, out);
  } else {
    end(id, is_away_ ? absence() : absl::UnavailableError("this worker is not in the job"), {},
        out);
  }
  return out;
}

void RegistryClient::finish(const Finished& end_of, ClientEffects& out) {
  if (pending_.count(end_of.id) == 0) return;
  ask(Cancel{end_of.id}, out);
  end(end_of.id, end_of.status, end_of.values, out);
}

void RegistryClient::end(std::uint64_t id, absl::Status status, std::vector<std::string> values,
                         ClientEffects& out) {
  pending_.erase(id);
  out.push_back(Ended{id, std::move(status), std::move(values)});
}

}  // namespace sinew::internal::registry
