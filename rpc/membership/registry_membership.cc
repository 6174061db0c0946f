#include "sinew/rpc/membership/registry_membership.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/membership/member_codec.h"

namespace sinew::internal {
namespace {

using std::chrono::nanoseconds;
using Values = std::vector<std::string>;

// Until it is known who of two is out.
constexpr nanoseconds kJudgingTime = std::chrono::seconds(3);
// For the last word to whoever holds the list.
constexpr nanoseconds kEndTime = std::chrono::milliseconds(500);
// What is longer has no end.
constexpr nanoseconds kLongestGather = std::chrono::hours(24 * 365);
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

class RegistryMembership final : public Membership,
                                 public Gather,
                                 public std::enable_shared_from_this<RegistryMembership> {
 public:
  RegistryMembership(MembershipOptions options, StartRegistry start, Directory& directory,
                     Scheduler& scheduler)
      : options_(std::move(options)),
        start_(std::move(start)),
        directory_(directory),
        scheduler_(scheduler),
        joined_(scheduler.executor()),
        left_(scheduler.executor()) {}
  ~RegistryMembership() override { close(); }

  // Membership
  Future<void> join_async() override;
  Future<void> leave_async(nanoseconds timeout) override;
  void on_worker_lost(const WorkerInfo& worker, Proof proof, std::string reason) override;
  void close() override;
  MembershipState state() const override;
  WorkerInfo self() const override;
  std::vector<std::string> world_names() const override;
  WorkerInfo coordinator() const override;
  void when_judged(const WorkerInfo& worker, std::function<void()> then) override;
  Standing on_asked(const WorkerInfo& asker, const std::string& address,
                    const Standing& claim) override;

  // Gather
  Future<Values> all_gather_async(const std::vector<std::string>& names, std::string value,
                                  nanoseconds timeout, LossMode mode) override;
  Future<void> end(const absl::Status& reason) override;
  void on_worker_lost(const WorkerInfo&, Departure) override {}
  void on_worker_gone(const WorkerInfo&, Departure) override {}

 private:
  struct Meeting {
    std::set<Incarnation> members;
    std::uint64_t count = 0;
  };

  Registry::Listener listener();
  template <class Work>
  void post(Work work) {
    scheduler_.runner()->post([weak = weak_from_this(), work = std::move(work)]() mutable {
      if (const auto self = weak.lock(); self != nullptr) work(*self);
    });
  }
  void on_state(MembershipState state, const absl::Status& why);
  void on_in();
  void on_news(const registry::Record& record, std::optional<registry::Gone> gone,
               const std::string& reason);
  void on_joined(const registry::Record& record);
  void on_gone(const registry::Record& record, registry::Gone why, const std::string& reason);
  std::optional<Member> add(const registry::Record& record);
  void list_members();
  std::shared_ptr<Registry> registry() const;
  /// The next gather of a set of members.
  struct Turn {
    std::string set;
    std::uint64_t number = 0;
  };
  absl::StatusOr<Turn> next_turn_locked(const Values& names, LossMode mode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// It was none: the others may wait in it, so it is the next one again.
  void take_back(const Turn& turn);

  const MembershipOptions options_;
  const StartRegistry start_;
  Directory& directory_;
  Scheduler& scheduler_;
  const Promise<void> joined_;
  const Promise<void> left_;

  mutable Mutex mutex_;
  std::shared_ptr<Registry> registry_ ABSL_GUARDED_BY(mutex_);
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  MembershipState state_ ABSL_GUARDED_BY(mutex_) = MembershipState::kJoining;
  std::map<Incarnation, Member> members_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> world_names_ ABSL_GUARDED_BY(mutex_);
  // The latest last.
  std::deque<Departed> departed_ ABSL_GUARDED_BY(mutex_);
  // Sets of members that have met, and how often.
  std::map<std::string, Meeting> meetings_ ABSL_GUARDED_BY(mutex_);
  // Of the control executor.
  bool has_joined_ = false;
  std::uint64_t version_ = 0;
};

// ---- In and out.

std::shared_ptr<Registry> RegistryMembership::registry() const {
  MutexLock lock(mutex_);
  return registry_;
}

Registry::Listener RegistryMembership::listener() {
  const auto weak = weak_from_this();
  Registry::Listener listener;
  listener.on_member = [weak](const registry::MemberNews& news) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->post(
        [news](RegistryMembership& core) { core.on_news(news.member, news.gone, news.reason); });
  };
  listener.on_state = [weak](MembershipState state, const absl::Status& why) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->post([state, why](RegistryMembership& core) { core.on_state(state, why); });
  };
  return listener;
}

Future<void> RegistryMembership::join_async() {
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

Future<void> RegistryMembership::leave_async(nanoseconds /*timeout*/) {
  const std::shared_ptr<Registry> registry = this->registry();
  if (registry == nullptr) return make_ready_future();
  registry->leave();
  return left_.future();
}

void RegistryMembership::close() {
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

void RegistryMembership::on_state(MembershipState state, const absl::Status& why) {
  bool was_away = false;
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    was_away = state_ == MembershipState::kSuspected;
    state_ = state;
  }
  switch (state) {
    case MembershipState::kJoining:
      return;
    case MembershipState::kMember:
      if (was_away) options_.on_warning("whoever holds the list of members answers again");
      return on_in();
    case MembershipState::kSuspected:
      return options_.on_warning(
          absl::StrCat("nobody can join or be missed for now: ", why.message()));
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

void RegistryMembership::on_in() {
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

std::optional<Member> RegistryMembership::add(const registry::Record& record) {
  absl::StatusOr<Member> member = member_of(record);
  if (!member.ok()) {
    options_.on_warning(absl::StrCat("what the list has of worker '", record.worker.name,
                                     "' cannot be understood: ", member.status().message()));
    return std::nullopt;
  }
  MutexLock lock(mutex_);
  // It was in the whole list already.
  if (!members_.emplace(member->worker.incarnation, *member).second) return std::nullopt;
  return *std::move(member);
}

void RegistryMembership::list_members() {
  std::vector<Member> members;
  {
    MutexLock lock(mutex_);
    for (const auto& [incarnation, member] : members_) members.push_back(member);
  }
  directory_.replace(++version_, members);
}

void RegistryMembership::on_news(const registry::Record& record, std::optional<registry::Gone> gone,
                                 const std::string& reason) {
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
  }
  gone.has_value() ? on_gone(record, *gone, reason) : on_joined(record);
}

void RegistryMembership::on_joined(const registry::Record& record) {
  const std::optional<Member> member = add(record);
  if (!member.has_value()) return;
  list_members();
  options_.on_change({*member}, {});
}

void RegistryMembership::on_gone(const registry::Record& record, registry::Gone why,
                                 const std::string& reason) {
  const WorkerInfo& worker = record.worker;
  Departed gone;
  gone.worker = worker;
  gone.how = why == registry::Gone::kLeft ? Departure::kLeft : Departure::kLost;
  // Who has noticed it may have said it in full.
  gone.reason = absl::StartsWith(reason, "worker '")
                    ? reason
                    : absl::StrCat("worker '", worker.name, "' is lost: ", reason);
  std::shared_ptr<Registry> registry;
  {
    MutexLock lock(mutex_);
    if (members_.erase(worker.incarnation) == 0) return;
    departed_.push_back(gone);
    if (departed_.size() > kMostDeparted) departed_.pop_front();
    for (auto each = meetings_.begin(); each != meetings_.end();) {
      const bool was_in = each->second.members.count(worker.incarnation) > 0;
      each = was_in ? meetings_.erase(each) : std::next(each);
    }
    registry = registry_;
  }
  if (options_.before_change) options_.before_change({gone});
  list_members();
  options_.on_change({}, {gone});
  if (registry == nullptr) return;
  const std::string text = gone.how == Departure::kLeft
                               ? absl::StrCat("worker '", worker.name, "' has left the job")
                               : gone.reason;
  // Those to which all had come have ended before. One of its name that comes later has others.
  registry->end_gathers_with(worker.name, absl::UnavailableError(text));
}

void RegistryMembership::on_worker_lost(const WorkerInfo& worker, Proof proof, std::string reason) {
  if (const auto registry = this->registry(); registry != nullptr) {
    registry->report_lost(worker.incarnation, std::move(reason), proof == Proof::kEnded);
  }
}

void RegistryMembership::when_judged(const WorkerInfo& /*worker*/, std::function<void()> then) {
  const std::shared_ptr<Registry> registry = this->registry();
  auto on_executor = [weak = weak_from_this(), then = std::move(then)] {
    const auto self = weak.lock();
    if (self != nullptr) self->scheduler_.runner()->post([then] { then(); });
  };
  if (registry == nullptr) return on_executor();
  registry->when_sure(kJudgingTime, std::move(on_executor));
}

// Whoever has no way to this worker any more learns so what has become of it.
Standing RegistryMembership::on_asked(const WorkerInfo& asker, const std::string& /*address*/,
                                      const Standing& /*claim*/) {
  MutexLock lock(mutex_);
  Standing standing;
  standing.members = static_cast<std::uint32_t>(members_.size());
  standing.is_out = state_ == MembershipState::kEvicted;
  if (members_.count(asker.incarnation) > 0) standing.of_other = Standing::OfOther::kMember;
  for (const Departed& gone : departed_) {
    if (gone.worker.incarnation != asker.incarnation) continue;
    standing.of_other =
        gone.how == Departure::kLeft ? Standing::OfOther::kLeft : Standing::OfOther::kEvicted;
  }
  return standing;
}

MembershipState RegistryMembership::state() const {
  MutexLock lock(mutex_);
  return state_;
}

WorkerInfo RegistryMembership::self() const {
  MutexLock lock(mutex_);
  const auto found = members_.find(options_.self.worker.incarnation);
  return found == members_.end() ? options_.self.worker : found->second.worker;
}

std::vector<std::string> RegistryMembership::world_names() const {
  MutexLock lock(mutex_);
  return world_names_;
}

WorkerInfo RegistryMembership::coordinator() const {
  MutexLock lock(mutex_);
  WorkerInfo lowest;
  for (const auto& [incarnation, member] : members_) {
    if (lowest.name.empty() || member.worker.rank < lowest.rank) lowest = member.worker;
  }
  return lowest;
}

// ---- Gathers.

absl::StatusOr<RegistryMembership::Turn> RegistryMembership::next_turn_locked(const Values& names,
                                                                              LossMode mode) {
  constexpr char kAll[] = "the whole job";
  if (mode == LossMode::kTolerate) return Turn{kAll, meetings_[kAll].count++};
  std::set<Incarnation> members;
  // Its order is nothing, and it is the same in every process.
  std::uint64_t sum = 0;
  for (const std::string& name : names) {
    const auto found = std::find_if(members_.begin(), members_.end(), [&](const auto& each) {
      return each.second.worker.name == name;
    });
    if (found != members_.end()) {
      members.insert(found->first);
      sum += found->first.value;
      continue;
    }
    const auto gone = std::find_if(departed_.rbegin(), departed_.rend(),
                                   [&](const Departed& each) { return each.worker.name == name; });
    if (gone == departed_.rend()) return directory_.find(name).status();
    return absl::UnavailableError(gone->how == Departure::kLeft
                                      ? absl::StrCat("worker '", name, "' has left the job")
                                      : gone->reason);
  }
  const std::string set = absl::StrCat(names.size(), " workers, ", absl::Hex(sum));
  Meeting& meeting = meetings_[set];
  meeting.members = std::move(members);
  return Turn{set, meeting.count++};
}

void RegistryMembership::take_back(const Turn& turn) {
  MutexLock lock(mutex_);
  const auto meeting = meetings_.find(turn.set);
  if (meeting == meetings_.end()) return;
  meeting->second.count = std::min(meeting->second.count, turn.number);
}

Future<Values> RegistryMembership::all_gather_async(const std::vector<std::string>& wanted,
                                                    std::string value, nanoseconds timeout,
                                                    LossMode mode) {
  const Promise<Values> own(scheduler_.executor());
  const std::string& self = options_.self.worker.name;
  Values names = wanted;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (!std::binary_search(names.begin(), names.end(), self)) {
    own.set_error(RpcError(ErrorCode::kInvalidArgument,
                           absl::StrCat("a gather of worker '", self,
                                        "' lacks this worker's own name; add it to the set")));
    return own.future();
  }
  if (names.size() == 1) {
    own.set_value({std::move(value)});
    return own.future();
  }
  std::shared_ptr<Registry> registry;
  absl::StatusOr<Turn> turn = absl::UnavailableError("this worker shuts down");
  {
    MutexLock lock(mutex_);
    registry = registry_;
    if (registry != nullptr) turn = next_turn_locked(names, mode);
  }
  if (!turn.ok()) {
    own.set_error(make_error(turn.status()));
    return own.future();
  }
  // Where some may be missing, each says whose the value is.
  if (mode == LossMode::kTolerate) value = absl::StrCat(self, "\n", value);
  Values waited_for = mode == LossMode::kFail ? names : Values();
  const std::string key = absl::StrCat(turn->set, ", ", turn->number);
  registry->gather(key, std::move(waited_for), std::move(value), std::min(timeout, kLongestGather),
                   [weak = weak_from_this(), own, names = std::move(names), mode,
                    turn = *std::move(turn)](absl::StatusOr<Values> came) {
                     const auto membership = weak.lock();
                     const bool is_none = !came.ok() && registry::is_away(came.status());
                     if (is_none && membership != nullptr) membership->take_back(turn);
                     if (!came.ok()) return (void)own.try_set_error(make_error(came.status()));
                     if (mode == LossMode::kFail) return (void)own.try_set_value(*std::move(came));
                     std::map<std::string, std::string> by_name;
                     for (const std::string& each : *came) {
                       by_name.insert(absl::StrSplit(each, absl::MaxSplits('\n', 1)));
                     }
                     Values values;
                     for (const std::string& name : names) values.push_back(by_name[name]);
                     own.try_set_value(std::move(values));
                   });
  return own.future();
}

Future<void> RegistryMembership::end(const absl::Status& reason) {
  const std::shared_ptr<Registry> registry = this->registry();
  if (registry == nullptr) return make_ready_future();
  const Promise<void> ended(scheduler_.executor());
  registry->end_gathers(reason, [ended] { ended.try_set_value(); });
  return ended.future();
}

}  // namespace

MembershipAndGather make_registry_membership(MembershipOptions options, StartRegistry start,
                                             Directory& directory, Scheduler& scheduler) {
  const auto made = std::make_shared<RegistryMembership>(std::move(options), std::move(start),
                                                         directory, scheduler);
  return {made, made};
}

}  // namespace sinew::internal
