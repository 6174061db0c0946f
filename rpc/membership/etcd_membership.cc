#include "sinew/rpc/membership/etcd_membership.h"

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
#include "sinew/rpc/membership/etcd/etcd_registry.h"
#include "sinew/rpc/membership/member_codec.h"

namespace sinew::internal {
namespace {

using etcd::EtcdClient;
using etcd::EtcdOptions;
using etcd::EtcdRegistry;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using Values = std::vector<std::string>;

// Until it is known who of two is out.
constexpr nanoseconds kJudgingTime = seconds(3);
// For the last word to etcd.
constexpr nanoseconds kEndTime = std::chrono::milliseconds(500);
// What is longer has no end.
constexpr nanoseconds kLongestGather = std::chrono::hours(24 * 365);
constexpr std::size_t kMostDeparted = 64;

absl::StatusOr<EtcdOptions> client_options(const Rendezvous& place, const EtcdUse& use) {
  EtcdOptions options;
  options.endpoints = place.seeds;
  options.trusts_network = use.trusts_network;
  const auto read = [&](const char* name) { return use.environment(name).value_or(""); };
  const std::string ca = read("ETCDCTL_CACERT");
  const std::string certificate = read("ETCDCTL_CERT");
  const std::string key = read("ETCDCTL_KEY");
  if (!ca.empty() || !certificate.empty() || !key.empty()) options.tls = {ca, certificate, key};
  const std::pair<std::string, std::string> user =
      absl::StrSplit(read("ETCDCTL_USER"), absl::MaxSplits(':', 1));
  options.user = user.first;
  options.password = user.second.empty() ? read("ETCDCTL_PASSWORD") : user.second;
  if (absl::Status status = etcd::check(options); !status.ok()) {
    return absl::Status(
        status.code(), absl::StrCat("etcd: ", status.message(),
                                    " (ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY, ETCDCTL_USER and "
                                    "ETCDCTL_PASSWORD say how it is used)"));
  }
  return options;
}

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

class EtcdMembership final : public Membership,
                             public Gather,
                             public std::enable_shared_from_this<EtcdMembership> {
 public:
  EtcdMembership(MembershipOptions options, EtcdOptions servers, const EtcdUse& use,
                 Directory& directory, Scheduler& scheduler)
      : options_(std::move(options)),
        servers_(std::move(servers)),
        lease_(std::max(std::chrono::ceil<seconds>(use.lease), seconds(2))),
        directory_(directory),
        scheduler_(scheduler),
        joined_(scheduler.executor()),
        left_(scheduler.executor()) {}
  ~EtcdMembership() override { close(); }

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
  Standing on_asked(const WorkerInfo&, const std::string&, const Standing&) override { return {}; }

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

  EtcdRegistry::Listener listener();
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
  std::shared_ptr<EtcdRegistry> registry() const;
  /// The key of the next gather of these.
  absl::StatusOr<std::string> meet_locked(const Values& names)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const MembershipOptions options_;
  const EtcdOptions servers_;
  const seconds lease_;
  Directory& directory_;
  Scheduler& scheduler_;
  const Promise<void> joined_;
  const Promise<void> left_;

  mutable Mutex mutex_;
  std::shared_ptr<EtcdRegistry> registry_ ABSL_GUARDED_BY(mutex_);
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  MembershipState state_ ABSL_GUARDED_BY(mutex_) = MembershipState::kJoining;
  std::map<Incarnation, Member> members_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> world_names_ ABSL_GUARDED_BY(mutex_);
  // The latest last.
  std::deque<Departed> departed_ ABSL_GUARDED_BY(mutex_);
  // Sets of members that have met, and how often.
  std::map<std::string, Meeting> meetings_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t meetings_of_all_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of the control executor.
  bool has_joined_ = false;
  std::uint64_t version_ = 0;
};

// ---- In and out.

std::shared_ptr<EtcdRegistry> EtcdMembership::registry() const {
  MutexLock lock(mutex_);
  return registry_;
}

EtcdRegistry::Listener EtcdMembership::listener() {
  const auto weak = weak_from_this();
  EtcdRegistry::Listener listener;
  listener.on_member = [weak](const etcd::MemberNews& news) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->post([news](EtcdMembership& core) { core.on_news(news.member, news.gone, news.reason); });
  };
  listener.on_state = [weak](MembershipState state, const absl::Status& why) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->post([state, why](EtcdMembership& core) { core.on_state(state, why); });
  };
  return listener;
}

Future<void> EtcdMembership::join_async() {
  EtcdRegistry::Options options;
  proto::Member details;
  encode(options_.self, details);
  options.wanted.self = {options_.self.worker, details.SerializeAsString()};
  options.wanted.self.worker.rank = options_.rendezvous.rank;
  options.wanted.job = options_.job;
  options.wanted.world_size = options_.rendezvous.world_size;
  options.wanted.founds = options_.rendezvous.founds;
  options.wanted.instance = draw_job_instance();
  options.prefix = options_.rendezvous.path;
  options.lease = lease_;
  options.join_for = options_.timeout;
  absl::StatusOr<std::unique_ptr<EtcdClient>> client = EtcdClient::start(servers_);
  if (!client.ok()) return make_failed_future<void>(make_error(client.status()));
  MutexLock lock(mutex_);
  absl::StatusOr<std::unique_ptr<EtcdRegistry>> started =
      EtcdRegistry::start(*std::move(client), std::move(options), listener());
  if (!started.ok()) return make_failed_future<void>(make_error(started.status()));
  registry_ = *std::move(started);
  return joined_.future();
}

Future<void> EtcdMembership::leave_async(nanoseconds /*timeout*/) {
  const std::shared_ptr<EtcdRegistry> registry = this->registry();
  if (registry == nullptr) return make_ready_future();
  registry->leave();
  return left_.future();
}

void EtcdMembership::close() {
  std::shared_ptr<EtcdRegistry> registry;
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

void EtcdMembership::on_state(MembershipState state, const absl::Status& why) {
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
      if (was_away) options_.on_warning("etcd answers again");
      return on_in();
    case MembershipState::kSuspected:
      return options_.on_warning(
          absl::StrCat("nobody can join or be missed until etcd answers again: ", why.message()));
    case MembershipState::kEvicted:
      options_.on_removed(why);
      left_.try_set_value();
      return;
    case MembershipState::kLeft:
      joined_.try_set_error(
          make_error(why.ok() ? absl::CancelledError("this worker has left the job") : why));
      why.ok() ? left_.try_set_value() : left_.try_set_error(make_error(why));
      return;
  }
}

void EtcdMembership::on_in() {
  if (std::exchange(has_joined_, true)) return;
  const std::shared_ptr<EtcdRegistry> registry = this->registry();
  if (registry == nullptr) return;
  const EtcdRegistry::View view = registry->view();
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

std::optional<Member> EtcdMembership::add(const registry::Record& record) {
  absl::StatusOr<Member> member = member_of(record);
  if (!member.ok()) {
    options_.on_warning(absl::StrCat("what etcd has of worker '", record.worker.name,
                                     "' cannot be understood: ", member.status().message()));
    return std::nullopt;
  }
  MutexLock lock(mutex_);
  // It was in the whole list already.
  if (!members_.emplace(member->worker.incarnation, *member).second) return std::nullopt;
  return *std::move(member);
}

void EtcdMembership::list_members() {
  std::vector<Member> members;
  {
    MutexLock lock(mutex_);
    for (const auto& [incarnation, member] : members_) members.push_back(member);
  }
  directory_.replace(++version_, members);
}

void EtcdMembership::on_news(const registry::Record& record, std::optional<registry::Gone> gone,
                             const std::string& reason) {
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
  }
  gone.has_value() ? on_gone(record, *gone, reason) : on_joined(record);
}

void EtcdMembership::on_joined(const registry::Record& record) {
  const std::optional<Member> member = add(record);
  if (!member.has_value()) return;
  list_members();
  options_.on_change({*member}, {});
}

void EtcdMembership::on_gone(const registry::Record& record, registry::Gone why,
                             const std::string& reason) {
  const WorkerInfo& worker = record.worker;
  Departed gone;
  gone.worker = worker;
  gone.how = why == registry::Gone::kLeft ? Departure::kLeft : Departure::kLost;
  // Who has noticed it may have said it in full.
  gone.reason = absl::StartsWith(reason, "worker '")
                    ? reason
                    : absl::StrCat("worker '", worker.name, "' is lost: ", reason);
  std::shared_ptr<EtcdRegistry> registry;
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

void EtcdMembership::on_worker_lost(const WorkerInfo& worker, Proof proof, std::string reason) {
  if (const auto registry = this->registry(); registry != nullptr) {
    registry->report_lost(worker.incarnation, std::move(reason), proof == Proof::kEnded);
  }
}

void EtcdMembership::when_judged(const WorkerInfo& /*worker*/, std::function<void()> then) {
  const std::shared_ptr<EtcdRegistry> registry = this->registry();
  auto on_executor = [weak = weak_from_this(), then = std::move(then)] {
    const auto self = weak.lock();
    if (self != nullptr) self->scheduler_.runner()->post([then] { then(); });
  };
  if (registry == nullptr) return on_executor();
  registry->when_sure(kJudgingTime, std::move(on_executor));
}

MembershipState EtcdMembership::state() const {
  MutexLock lock(mutex_);
  return state_;
}

WorkerInfo EtcdMembership::self() const {
  MutexLock lock(mutex_);
  const auto found = members_.find(options_.self.worker.incarnation);
  return found == members_.end() ? options_.self.worker : found->second.worker;
}

std::vector<std::string> EtcdMembership::world_names() const {
  MutexLock lock(mutex_);
  return world_names_;
}

WorkerInfo EtcdMembership::coordinator() const {
  MutexLock lock(mutex_);
  WorkerInfo lowest;
  for (const auto& [incarnation, member] : members_) {
    if (lowest.name.empty() || member.worker.rank < lowest.rank) lowest = member.worker;
  }
  return lowest;
}

// ---- Gathers.

absl::StatusOr<std::string> EtcdMembership::meet_locked(const Values& names) {
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
  const std::string key = absl::StrCat(names.size(), " workers, ", absl::Hex(sum), ", ");
  Meeting& meeting = meetings_[key];
  meeting.members = std::move(members);
  return absl::StrCat(key, meeting.count++);
}

Future<Values> EtcdMembership::all_gather_async(const std::vector<std::string>& wanted,
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
  std::shared_ptr<EtcdRegistry> registry;
  absl::StatusOr<std::string> key = absl::UnavailableError("this worker shuts down");
  {
    MutexLock lock(mutex_);
    registry = registry_;
    if (registry != nullptr) {
      key = mode == LossMode::kFail ? meet_locked(names)
                                    : absl::StrCat("the whole job, ", meetings_of_all_++);
    }
  }
  if (!key.ok()) {
    own.set_error(make_error(key.status()));
    return own.future();
  }
  // Where some may be missing, each says whose the value is.
  if (mode == LossMode::kTolerate) value = absl::StrCat(self, "\n", value);
  Values waited_for = mode == LossMode::kFail ? names : Values();
  registry->gather(*key, std::move(waited_for), std::move(value), std::min(timeout, kLongestGather),
                   [own, names = std::move(names), mode](absl::StatusOr<Values> came) {
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

Future<void> EtcdMembership::end(const absl::Status& reason) {
  const std::shared_ptr<EtcdRegistry> registry = this->registry();
  if (registry == nullptr) return make_ready_future();
  const Promise<void> ended(scheduler_.executor());
  registry->end_gathers(reason, [ended] { ended.try_set_value(); });
  return ended.future();
}

}  // namespace

absl::Status read_etcd_url(absl::string_view url, Rendezvous& rendezvous) {
  absl::StatusOr<etcd::EtcdUrl> parsed = etcd::parse_etcd_url(url);
  if (!parsed.ok()) return parsed.status();
  rendezvous.seeds = std::move(parsed->endpoints);
  rendezvous.path = std::move(parsed->prefix);
  return absl::OkStatus();
}

absl::StatusOr<MembershipAndGather> make_etcd_membership(MembershipOptions options,
                                                         const EtcdUse& use, Directory& directory,
                                                         Scheduler& scheduler) {
  absl::StatusOr<EtcdOptions> servers = client_options(options.rendezvous, use);
  if (!servers.ok()) return servers.status();
  const auto made = std::make_shared<EtcdMembership>(std::move(options), *std::move(servers), use,
                                                     directory, scheduler);
  return MembershipAndGather{made, made};
}

}  // namespace sinew::internal
