#include "sinew/rpc/membership/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/parse_message.h"

namespace sinew::internal {
namespace {

using std::chrono::nanoseconds;

// Until it is known who of two is out.
constexpr nanoseconds kJudgingTime = std::chrono::seconds(3);
// For the goodbye to the registrar.
constexpr nanoseconds kEndTime = std::chrono::milliseconds(500);
// What is longer has no end.
constexpr nanoseconds kLongestGather = std::chrono::hours(24 * 365);
constexpr std::size_t kMostValueBytes = std::size_t{1} << 20;
// A gather carries either, and then the value, or why there is none.
constexpr absl::string_view kValue = "=";
constexpr absl::string_view kTooLarge = "!";
constexpr std::size_t kMostDeparted = 64;

absl::StatusOr<Member> member_of(const registry::Record& record) {
  absl::StatusOr<proto::Member> parsed = parse_message<proto::Member>("a Member", record.details);
  if (!parsed.ok()) return parsed.status();
  absl::StatusOr<Member> member = decode(*parsed);
  if (!member.ok()) return member.status();
  const WorkerInfo& self = record.worker;
  if (member->worker.name != self.name || member->worker.incarnation != self.incarnation) {
    return absl::InvalidArgumentError("it describes another worker");
  }
  member->worker.rank = self.rank;
  return member;
}

std::string sentence_of(const registry::MemberNews& news) {
  const std::string worker = absl::StrCat("worker '", news.member.worker.name, "'");
  if (news.gone == Gone::kLeft) return absl::StrCat(worker, " has left the job");
  const std::string reason = news.reason.empty() ? to_text(*news.gone) : news.reason;
  // Who has noticed it may have said it in full.
  if (absl::StartsWith(reason, "worker '")) return reason;
  const bool has_ended = news.gone == Gone::kProcessEnded;
  return absl::StrCat(worker, has_ended ? " is gone: " : " is lost: ", reason);
}

absl::Status shuts_down() { return absl::UnavailableError("this worker shuts down"); }

}  // namespace

Membership::Membership(MembershipOptions options, StartRegistry start, Directory& directory,
                       Scheduler& scheduler)
    : options_(std::move(options)),
      start_(std::move(start)),
      directory_(directory),
      scheduler_(scheduler),
      joined_(scheduler.executor()),
      left_(scheduler.executor()) {}

// ---- In and out.

std::shared_ptr<Registry> Membership::registry() const {
  MutexLock lock(mutex_);
  return registry_;
}

Registry::Listener Membership::listener() {
  const auto weak = weak_from_this();
  Registry::Listener listener;
  listener.on_member = [weak](const registry::MemberNews& news) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->post([news](Membership& core) { core.on_news(news); });
  };
  listener.on_state = [weak](MembershipState state, const absl::Status& why) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->post([state, why](Membership& core) { core.on_state(state, why); });
  };
  return listener;
}

Future<void> Membership::join_async() {
  proto::Member details;
  encode(options_.self, details);
  registry::Record self{options_.self.worker, details.SerializeAsString()};
  self.worker.rank = options_.rendezvous.rank;
  MutexLock lock(mutex_);
  absl::StatusOr<std::shared_ptr<Registry>> started = start_(self, listener());
  if (!started.ok()) return make_failed_future<void>(make_error(started.status()));
  registry_ = *std::move(started);
  return joined_.future();
}

Future<void> Membership::leave_async() {
  const std::shared_ptr<Registry> registry = this->registry();
  if (registry == nullptr) return make_ready_future();
  registry->leave();
  return left_.future();
}

void Membership::close() {
  std::shared_ptr<Registry> registry;
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    registry = std::exchange(registry_, nullptr);
    if (state_ != MembershipState::kEvicted) state_ = MembershipState::kLeft;
  }
  if (registry != nullptr) registry->give_up(kEndTime);
  registry.reset();
  const std::exception_ptr ended = make_error(absl::CancelledError("this worker ends"));
  joined_.try_set_error(ended);
  left_.try_set_error(ended);
}

void Membership::on_state(MembershipState state, const absl::Status& why) {
  bool was_away = false;
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    was_away = state_ == MembershipState::kSuspected;
    state_ = state;
    if (state == MembershipState::kSuspected) absence_ = std::string(why.message());
  }
  switch (state) {
    case MembershipState::kJoining:
      return;
    case MembershipState::kMember:
      if (was_away) options_.on_warning("the registrar answers again");
      return on_in();
    case MembershipState::kSuspected:
      return options_.on_warning(
          absl::StrCat("no worker can join or be evicted for now: ", why.message()));
    case MembershipState::kEvicted:
      options_.on_removed(why);
      left_.try_set_value();
      return;
    case MembershipState::kLeft:
      joined_.try_set_error(
          make_error(why.ok() ? absl::CancelledError("this worker has left the job") : why));
      // It is out all the same, and its own calls have ended.
      if (!why.ok() && has_joined_) options_.on_warning(std::string(why.message()));
      left_.try_set_value();
      return;
  }
}

void Membership::on_in() {
  if (std::exchange(has_joined_, true)) return;
  const std::shared_ptr<Registry> registry = this->registry();
  if (registry == nullptr) return;
  const Registry::View view = registry->view();
  std::vector<Member> others;
  for (const registry::Record& record : view.members) {
    std::optional<Member> member = add(record);
    const bool is_other =
        member.has_value() && member->worker.incarnation != options_.self.worker.incarnation;
    if (is_other) others.push_back(*std::move(member));
  }
  {
    MutexLock lock(mutex_);
    world_names_ = view.world_names;
  }
  list_members();
  options_.on_change(others, {});
  joined_.try_set_value();
}

// ---- The list.

std::optional<Member> Membership::add(const registry::Record& record) {
  absl::StatusOr<Member> member = member_of(record);
  if (!member.ok()) {
    options_.on_warning(absl::StrCat("what the list has of worker '", record.worker.name,
                                     "' cannot be understood: ", member.status().message()));
    return std::nullopt;
  }
  MutexLock lock(mutex_);
  // It was in the whole list already.
  if (find_locked(member->worker.incarnation) != members_.end()) return std::nullopt;
  members_.push_back(*member);
  return *std::move(member);
}

std::vector<Member>::const_iterator Membership::find_locked(Incarnation member) const {
  return std::find_if(members_.begin(), members_.end(),
                      [&](const Member& each) { return each.worker.incarnation == member; });
}

void Membership::list_members() {
  std::vector<Member> members;
  {
    MutexLock lock(mutex_);
    members = members_;
  }
  directory_.replace(++version_, members);
}

void Membership::on_news(const registry::MemberNews& news) {
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
  }
  if (news.gone.has_value()) return on_gone(news);
  const std::optional<Member> member = add(news.member);
  if (!member.has_value()) return;
  list_members();
  options_.on_change({*member}, {});
}

void Membership::on_gone(const registry::MemberNews& news) {
  const WorkerInfo& worker = news.member.worker;
  Departed gone;
  gone.worker = worker;
  gone.why = *news.gone;
  gone.reason = sentence_of(news);
  std::shared_ptr<Registry> registry;
  {
    MutexLock lock(mutex_);
    const auto found = find_locked(worker.incarnation);
    if (found == members_.end()) return;
    members_.erase(found);
    departed_.push_back(gone);
    if (departed_.size() > kMostDeparted) departed_.pop_front();
    for (auto each = meetings_.begin(); each != meetings_.end();) {
      const bool was_in = each->second.members.count(worker.incarnation) > 0;
      each = was_in ? meetings_.erase(each) : std::next(each);
    }
    registry = registry_;
  }
  list_members();
  options_.on_change({}, {gone});
  if (registry == nullptr) return;
  // Those to which all had come have ended before. One of its name that comes later has others.
  registry->end_gathers_with(worker.name, absl::UnavailableError(gone.reason));
}

void Membership::on_worker_lost(const WorkerInfo& worker, bool has_ended, std::string reason) {
  if (const auto registry = this->registry(); registry != nullptr) {
    registry->report_lost(worker.incarnation, std::move(reason), has_ended);
  }
}

void Membership::when_sure(std::function<void()> then) {
  const std::shared_ptr<Registry> registry = this->registry();
  auto on_executor = [weak = weak_from_this(), then = std::move(then)] {
    const auto self = weak.lock();
    if (self != nullptr) self->scheduler_.runner()->post([then] { then(); });
  };
  if (registry == nullptr) return on_executor();
  registry->when_sure(kJudgingTime, std::move(on_executor));
}

MembershipState Membership::state() const {
  MutexLock lock(mutex_);
  return state_;
}

std::string Membership::absence() const {
  MutexLock lock(mutex_);
  return absence_;
}

WorkerInfo Membership::self() const {
  MutexLock lock(mutex_);
  const auto found = find_locked(options_.self.worker.incarnation);
  return found == members_.end() ? options_.self.worker : found->worker;
}

std::vector<std::string> Membership::world_names() const {
  MutexLock lock(mutex_);
  return world_names_;
}

WorkerInfo Membership::coordinator() const {
  MutexLock lock(mutex_);
  WorkerInfo lowest;
  for (const Member& member : members_) {
    if (lowest.name.empty() || member.worker.rank < lowest.rank) lowest = member.worker;
  }
  return lowest;
}

// ---- Gathers.

absl::StatusOr<Membership::Values> Membership::sorted_with_self(Values names) const {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const std::string& self = options_.self.worker.name;
  if (std::binary_search(names.begin(), names.end(), self)) return names;
  return absl::InvalidArgumentError(absl::StrCat(
      "a gather of worker '", self, "' lacks this worker's own name; add it to the set"));
}

absl::StatusOr<Membership::Turn> Membership::next_turn_locked(const Values& names) {
  std::set<Incarnation> members;
  // Its order is nothing, and it is the same in every process.
  std::uint64_t sum = 0;
  for (const std::string& name : names) {
    const auto found = std::find_if(members_.rbegin(), members_.rend(),
                                    [&](const Member& each) { return each.worker.name == name; });
    if (found != members_.rend()) {
      members.insert(found->worker.incarnation);
      sum += found->worker.incarnation.value;
      continue;
    }
    const auto gone = std::find_if(departed_.rbegin(), departed_.rend(),
                                   [&](const Departed& each) { return each.worker.name == name; });
    if (gone == departed_.rend()) return directory_.find(name).status();
    return absl::UnavailableError(gone->reason);
  }
  const std::string set = absl::StrCat(names.size(), " workers, ", absl::Hex(sum));
  Meeting& meeting = meetings_[set];
  meeting.members = std::move(members);
  return Turn{set, meeting.count++};
}

void Membership::take_back(const Turn& turn) {
  MutexLock lock(mutex_);
  const auto meeting = meetings_.find(turn.set);
  if (meeting == meetings_.end()) return;
  meeting->second.count = std::min(meeting->second.count, turn.number);
}

Future<Membership::Values> Membership::gather(const Turn& turn, Values names,
                                              const std::string& value, nanoseconds timeout) {
  const Promise<Values> own(scheduler_.executor());
  const std::shared_ptr<Registry> registry = this->registry();
  if (registry == nullptr) return make_failed_future<Values>(make_error(shuts_down()));
  const std::string key = absl::StrCat(turn.set, ", ", turn.number);
  {
    MutexLock lock(mutex_);
    gatherings_[key] = {key, names, Clock::system().now()};
  }
  // After earlier events of this worker were delivered: a caller that is told of an end may ask
  // why.
  registry->gather(key, std::move(names), given(value), std::min(timeout, kLongestGather),
                   [weak = weak_from_this(), own, turn, key](absl::StatusOr<Values> came) {
                     const auto membership = weak.lock();
                     if (membership == nullptr)
                       return (void)own.try_set_error(make_error(shuts_down()));
                     {
                       MutexLock lock(membership->mutex_);
                       membership->gatherings_.erase(key);
                     }
                     membership->post([own, turn, came = std::move(came)](Membership& core) {
                       const absl::StatusOr<Values> values = came.ok() ? taken(*came) : came;
                       if (values.ok()) return (void)own.try_set_value(*values);
                       if (registry::is_away(values.status())) core.take_back(turn);
                       own.try_set_error(make_error(values.status()));
                     });
                   });
  return own.future();
}

// One that is too large ends the gather at all members, not only here.
std::string Membership::given(const std::string& value) const {
  if (value.size() <= kMostValueBytes) return absl::StrCat(kValue, value);
  return absl::StrCat(kTooLarge, "worker '", options_.self.worker.name, "' gives ", value.size(),
                      " bytes to a gather, and at most ", kMostValueBytes, " are taken");
}

absl::StatusOr<Membership::Values> Membership::taken(const Values& given) {
  Values values;
  for (const std::string& each : given) {
    const bool is_value = absl::StartsWith(each, kValue);
    if (!is_value) {
      return absl::ResourceExhaustedError(
          printable(std::string(absl::StripPrefix(each, kTooLarge))));
    }
    values.push_back(each.substr(kValue.size()));
  }
  return values;
}

Future<Membership::Values> Membership::all_gather_async(const std::vector<std::string>& wanted,
                                                        std::string value, nanoseconds timeout) {
  const absl::StatusOr<Values> names = sorted_with_self(wanted);
  if (!names.ok()) return make_failed_future<Values>(make_error(names.status()));
  if (names->size() == 1) return make_ready_future(Values{std::move(value)});
  absl::StatusOr<Turn> turn = shuts_down();
  {
    MutexLock lock(mutex_);
    if (registry_ != nullptr) turn = next_turn_locked(*names);
  }
  if (!turn.ok()) return make_failed_future<Values>(make_error(turn.status()));
  return gather(*turn, *names, value, timeout);
}

Future<Membership::Values> Membership::gather_from_job_async(const std::vector<std::string>& wanted,
                                                             std::string value,
                                                             nanoseconds timeout) {
  const absl::StatusOr<Values> names = sorted_with_self(wanted);
  if (!names.ok()) return make_failed_future<Values>(make_error(names.status()));
  if (names->size() == 1) return make_ready_future(Values{std::move(value)});
  Turn turn{"the whole job"};
  {
    MutexLock lock(mutex_);
    turn.number = meetings_[turn.set].count++;
  }
  // As some may be missing, each says whose the value is.
  return gather(turn, {}, absl::StrCat(options_.self.worker.name, "\n", value), timeout)
      .then([names = *names](const Values& came) {
        std::map<std::string, std::string> by_name;
        for (const std::string& each : came) {
          by_name.insert(absl::StrSplit(each, absl::MaxSplits('\n', 1)));
        }
        Values values;
        for (const std::string& name : names) values.push_back(by_name[name]);
        return values;
      });
}

std::vector<Membership::Gathering> Membership::gatherings() const {
  std::vector<Gathering> gatherings;
  MutexLock lock(mutex_);
  for (const auto& [key, gathering] : gatherings_) gatherings.push_back(gathering);
  return gatherings;
}

Future<void> Membership::end_gathers(const absl::Status& reason) {
  const std::shared_ptr<Registry> registry = this->registry();
  if (registry == nullptr) return make_ready_future();
  const Promise<void> ended(scheduler_.executor());
  registry->end_gathers(reason, [ended] { ended.try_set_value(); });
  return ended.future();
}

}  // namespace sinew::internal
